// SPDX-License-Identifier: Apache-2.0

package settings

import (
	"fmt"
	"os"
	"strings"
	"unicode/utf8"

	"github.com/magiconair/properties"
)

// maxFileBytes bounds what is read as configuration.
const maxFileBytes = 4 << 20

// Entry is one assignment of a file.
type Entry struct {
	Key   string
	Value string // blanks around it are removed
	Line  int    // line it begins at, from 1
}

// File is a parsed properties file. Later entries of the same key win.
type File struct {
	Path    string // as it should be shown in messages
	Entries []Entry
}

// Get returns the value in force for key.
func (f *File) Get(key string) (value string, ok bool) {
	for i := len(f.Entries) - 1; i >= 0; i-- {
		if f.Entries[i].Key == key {
			return f.Entries[i].Value, true
		}
	}
	return "", false
}

// Load reads and parses the properties file at path. It blocks for the read.
func Load(path string) (*File, error) {
	info, err := os.Stat(path)
	if err != nil {
		return nil, fmt.Errorf("settings: read configuration: %w", err)
	}
	if !info.Mode().IsRegular() || info.Size() > maxFileBytes {
		return nil, fmt.Errorf("settings: read %s: not a file of at most %d bytes", path, maxFileBytes)
	}
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, fmt.Errorf("settings: read configuration: %w", err)
	}
	return Parse(path, data)
}

// Parse parses properties text. name stands for the text in errors.
//
// The text is UTF-8, with Java's escapes (\uXXXX, \t, a backslash at a line's end), comments with
// # and !, and = , : or a blank between key and value. ${} is plain text, as in Java.
func Parse(name string, data []byte) (*File, error) {
	if !utf8.Valid(data) {
		return nil, fmt.Errorf("settings: parse %s: the text is not UTF-8", name)
	}
	f := &File{Path: name}
	loader := properties.Loader{Encoding: properties.UTF8, DisableExpansion: true}
	text := strings.TrimPrefix(string(data), "\uFEFF")
	for _, l := range logicalLines(text) {
		p, err := loader.LoadBytes([]byte(l.text))
		if err != nil {
			return nil, fmt.Errorf("settings: parse %s line %d: %s", name, l.number, reason(err))
		}
		for _, key := range p.Keys() {
			value, _ := p.Get(key)
			if key == "" {
				return nil, fmt.Errorf("settings: parse %s line %d: no key before %q",
					name, l.number, value)
			}
			f.Entries = append(f.Entries, Entry{key, strings.TrimSpace(value), l.number})
		}
	}
	return f, nil
}

// reason cuts the line number off that the parser puts in front: it counts from each entry.
func reason(err error) string {
	text := err.Error()
	if _, rest, ok := strings.Cut(text, "Line 1: "); ok {
		return rest
	}
	return text
}

type logicalLine struct {
	text   string
	number int
}

// logicalLines joins lines that end in an odd number of backslashes with the next one and leaves
// out blank lines and comments, so that each entry is parsed alone and keeps its line number.
func logicalLines(text string) []logicalLine {
	text = strings.ReplaceAll(text, "\r\n", "\n")
	text = strings.ReplaceAll(text, "\r", "\n")
	var out []logicalLine
	var joined []byte // of the line that goes on, reused
	number := 0       // of its first line; 0 when none goes on
	for i, line := range strings.Split(text, "\n") {
		trimmed := strings.TrimLeft(line, " \t\f")
		if number == 0 {
			if trimmed == "" || trimmed[0] == '#' || trimmed[0] == '!' {
				continue
			}
			number, joined = i+1, joined[:0]
		}
		if continues(trimmed) {
			joined = append(joined, trimmed[:len(trimmed)-1]...)
			continue
		}
		joined = append(joined, trimmed...)
		out = append(out, logicalLine{string(joined), number})
		number = 0
	}
	if number != 0 && len(joined) > 0 { // the text ends in a backslash
		out = append(out, logicalLine{string(joined), number})
	}
	return out
}

func continues(line string) bool {
	n := len(line) - len(strings.TrimRight(line, `\`))
	return n%2 == 1
}

// escaper writes a value so that Java and Parse read it back unchanged.
var escaper = strings.NewReplacer(`\`, `\\`, "\n", `\n`, "\r", `\r`, "\t", `\t`, "\f", `\f`)

// Format renders entries as properties text, one "key=value" a line in the order given.
func Format(entries []Entry) []byte {
	var b strings.Builder
	for _, e := range entries {
		b.WriteString(keyEscaper.Replace(e.Key))
		b.WriteByte('=')
		b.WriteString(escaper.Replace(e.Value))
		b.WriteByte('\n')
	}
	return []byte(b.String())
}

var keyEscaper = strings.NewReplacer(`\`, `\\`, " ", `\ `, ":", `\:`, "=", `\=`, "#", `\#`,
	"!", `\!`, "\t", `\t`, "\n", `\n`, "\r", `\r`, "\f", `\f`)
