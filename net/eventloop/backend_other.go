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

// setCongestion: congestion control is not set on this platform.
func setCongestion(int, string) error { return nil }
