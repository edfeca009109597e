// SPDX-License-Identifier: Apache-2.0

//go:build !linux

package eventloop

// iovMax is not used by the portable backend.
const iovMax = 0

func newBackend(name string) (backend, error) {
	if name == "" || name == BackendNet {
		return &netBackend{}, nil
	}
	return nil, errUnknownBackend
}

// prepareListener has nothing to set on this platform.
func prepareListener(int, *Config) error { return nil }
