// SPDX-License-Identifier: Apache-2.0

package client

// Compress returns body in the form that codec makes of it and the bits of the message's system flag
// that say so; body itself and 0 when it does not shrink. Levels are those of the codec, as with
// WithCompression. Producers do this by themselves; it is for tools that build requests of their own.
func Compress(codec Codec, level int, body []byte) (out []byte, sysFlag int32, err error) {
	c, err := newCompressor(codec, level, 0)
	if err != nil {
		return nil, 0, err
	}
	out, sysFlag = c.compress(body)
	return out, sysFlag, nil
}
