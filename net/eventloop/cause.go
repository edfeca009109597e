// SPDX-License-Identifier: Apache-2.0

package eventloop

import (
	"errors"
	"io"
)

// plainEOF makes io.EOF of whatever wraps it, so that handlers may compare.
func plainEOF(err error) error {
	if errors.Is(err, io.EOF) {
		return io.EOF
	}
	return err
}
