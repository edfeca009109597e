// SPDX-License-Identifier: Apache-2.0

package eventloop

func newBackend(name string) (backend, error) {
	releaseWorkers()
	switch name {
	case "", BackendEpoll:
		return &epollBackend{}, nil
	case BackendGnet:
		return &gnetBackend{}, nil
	case BackendNet:
		return &netBackend{}, nil
	}
	return nil, errUnknownBackend
}
