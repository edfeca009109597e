// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"fmt"
	"math/rand/v2"

	"github.com/skylarkmq/skylark/client"
)

const (
	bodiesMax   = 256 << 20 // bytes of all bodies of a run
	bodiesWant  = 32 << 20  // the same of drawn ones, as far as bodiesLeast allows
	bodiesLeast = 16
	bodiesMost  = 1024
	bodySeed    = 42
)

// filler is what the compressible part of a body repeats.
const filler = "skylark perf filler "

// rawBody is a body as it goes into a frame.
type rawBody struct {
	bytes   []byte
	sysFlag int32 // of compression
}

// makeBodies makes the bodies that messages take in turn: one for a fixed size, else up to 1024 drawn
// ones. The same settings give the same bodies.
func makeBodies(cfg *Produce) ([]rawBody, error) {
	list, err := plainBodies(cfg)
	if err != nil {
		return nil, err
	}
	bodies := make([]rawBody, len(list))
	for i, b := range list {
		bodies[i].bytes = b
		if cfg.Compress == "" || len(b) < cfg.CompressOver {
			continue
		}
		codec, err := codecNamed(cfg.Compress)
		if err != nil {
			return nil, err
		}
		out, flag, err := client.Compress(codec, cfg.CompressLevel, b)
		if err != nil {
			return nil, fmt.Errorf("workload: %w: compress: %w", ErrSettings, err)
		}
		bodies[i] = rawBody{bytes: out, sysFlag: flag}
	}
	return bodies, nil
}

func plainBodies(cfg *Produce) ([][]byte, error) {
	if cfg.Bodies != "" {
		return readBodies(cfg.Bodies)
	}
	r := rand.New(rand.NewPCG(bodySeed, bodySeed))
	if cfg.Sizes == "" {
		return [][]byte{makeBody(r, cfg.Size, cfg.Compressible)}, nil
	}
	s, err := parseSizes(cfg.Sizes)
	if err != nil {
		return nil, fmt.Errorf("workload: %w: sizes: %w", ErrSettings, err)
	}
	n := min(max(int(bodiesWant/s.mean), bodiesLeast), bodiesMost)
	list := make([][]byte, n)
	for i := range list {
		list[i] = makeBody(r, s.draw(r), cfg.Compressible)
	}
	return list, nil
}

// makeBody makes a body of which a share is text that repeats itself, and the rest random.
func makeBody(r *rand.Rand, size int, compressible float64) []byte {
	const chunk = 64
	random := chunk - int(compressible*chunk+0.5)
	b := make([]byte, size)
	for i := range b {
		b[i] = filler[i%len(filler)]
		if i%chunk < random {
			b[i] = byte(r.Uint32())
		}
	}
	return b
}

func codecNamed(name string) (client.Codec, error) {
	switch name {
	case "zlib":
		return client.Zlib, nil
	case "lz4":
		return client.LZ4, nil
	case "zstd":
		return client.Zstd, nil
	}
	return 0, fmt.Errorf("workload: %w: compress is %q, want zlib, lz4 or zstd", ErrSettings, name)
}
