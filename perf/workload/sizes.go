// SPDX-License-Identifier: Apache-2.0

package workload

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"math/rand/v2"
	"os"
	"strconv"
	"strings"
)

// sizer draws body sizes.
type sizer struct {
	draw func(r *rand.Rand) int
	mean float64
	max  int // no size is larger
	min  int
}

const sizeMax = 64 << 20 // bytes, the most that maxMessageSize of a Skylark broker allows

// parseSizes reads how body sizes are spread:
//
//	1024                     always 1024 bytes
//	100-2000                 each size between as often
//	exp:500                  exponential with a mean of 500, at least 1 and at most 20 times the mean
//	100:70,1000:25,65536:5   sizes with their weights
func parseSizes(text string) (sizer, error) {
	if mean, ok := strings.CutPrefix(text, "exp:"); ok {
		n, err := parseSize(mean)
		if err != nil {
			return sizer{}, err
		}
		most := min(20*n, sizeMax)
		return sizer{
			draw: func(r *rand.Rand) int { return min(max(int(r.ExpFloat64()*float64(n)), 1), most) },
			mean: float64(n), min: 1, max: most,
		}, nil
	}
	if low, high, ok := strings.Cut(text, "-"); ok {
		from, err := parseSize(low)
		if err != nil {
			return sizer{}, err
		}
		to, err := parseSize(high)
		if err != nil {
			return sizer{}, err
		}
		if to < from {
			return sizer{}, fmt.Errorf("%q: %d is below %d", text, to, from)
		}
		return sizer{
			draw: func(r *rand.Rand) int { return from + r.IntN(to-from+1) },
			mean: float64(from+to) / 2, min: from, max: to,
		}, nil
	}
	return parseWeights(text)
}

func parseWeights(text string) (sizer, error) {
	var sizes []int
	var weights []float64
	s := sizer{min: sizeMax}
	sum := 0.0
	for one := range strings.SplitSeq(text, ",") {
		size, weight, weighted := strings.Cut(one, ":")
		n, err := parseSize(size)
		if err != nil {
			return sizer{}, err
		}
		w := 1.0
		if weighted {
			if w, err = strconv.ParseFloat(weight, 64); err != nil || !(w > 0) || w > 1e9 {
				return sizer{}, fmt.Errorf("%q: weight %q is not above 0 and at most 1e9", text, weight)
			}
		}
		sizes, weights = append(sizes, n), append(weights, w)
		s.min, s.max = min(s.min, n), max(s.max, n)
		s.mean += w * float64(n)
		sum += w
	}
	s.mean /= sum
	s.draw = func(r *rand.Rand) int {
		at := r.Float64() * sum
		for i, w := range weights {
			if at -= w; at < 0 {
				return sizes[i]
			}
		}
		return sizes[len(sizes)-1]
	}
	return s, nil
}

func parseSize(text string) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(text))
	if err != nil || n < 1 || n > sizeMax {
		return 0, fmt.Errorf("size is %s, want 1 to %d bytes", text, sizeMax)
	}
	return n, nil
}

// readBodies reads message bodies, one a line. Empty lines are passed over.
func readBodies(name string) ([][]byte, error) {
	f, err := os.Open(name)
	if err != nil {
		return nil, fmt.Errorf("workload: bodies: %w", err)
	}
	defer f.Close()
	var list [][]byte
	in, total := bufio.NewReaderSize(f, 64<<10), 0
	for {
		line, err := in.ReadBytes('\n')
		if n := len(line); n > 0 && line[n-1] == '\n' {
			line = line[:n-1]
		}
		if len(line) > sizeMax {
			return nil, fmt.Errorf("workload: bodies: %s: line %d has %d bytes, at most %d make a message",
				name, len(list)+1, len(line), sizeMax)
		}
		if total += len(line); total > bodiesMax {
			return nil, fmt.Errorf("workload: bodies: %s has more than %d bytes", name, bodiesMax)
		}
		if len(line) > 0 {
			list = append(list, line)
		}
		switch {
		case errors.Is(err, io.EOF) && len(list) == 0:
			return nil, fmt.Errorf("workload: bodies: %s has no line", name)
		case errors.Is(err, io.EOF):
			return list, nil
		case err != nil:
			return nil, fmt.Errorf("workload: bodies: %w", err)
		}
	}
}
