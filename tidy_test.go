// SPDX-License-Identifier: Apache-2.0

// Package tidy_test reads the source tree and checks the rules that no compiler knows: who imports
// whom, which names a package may have, where outside libraries are used, and that each package has a
// comment and each file its licence tag. ARCHITECTURE.md gives the reasons.
package tidy_test

import (
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/skylarkmq/skylark"

// imports lists for each package what it may import from this module. A trailing "/..." stands for
// the package and everything below it. A new package needs a row here.
var imports = map[string][]string{
	"zerocopy":        nil,
	"storage/vfs":     nil,
	"storage/record":  nil,
	"storage/foreign": nil, // what only RocketMQ can read
	"net/remoting":    nil,

	"storage/vfs/crashfs":  {"storage/vfs"}, // a file system that can lose power, for tests
	"storage/mappedfile":   {"storage/vfs", "zerocopy"},
	"net/protocol":         {"net/remoting"},
	"storage/commitlog":    {"storage/mappedfile", "storage/record", "storage/vfs", "zerocopy"},
	"storage/consumequeue": {"storage/mappedfile", "storage/record", "storage/vfs"},
	"storage/indexfile":    {"storage/mappedfile", "storage/record", "storage/vfs"},
	"net/eventloop":        {"net/remoting", "zerocopy"},
	"net/invoke":           {"net/remoting"},
	"storage":              {"storage/...", "zerocopy"},
	"storage/inspect":      {"storage", "storage/consumequeue", "storage/indexfile", "storage/record"},

	"engine/settings":  nil, // reads RocketMQ's properties files for broker and name server
	"engine/stats":     {"net/protocol"},
	"engine/tablefile": nil, // one write of a table's file for many changes
	"engine/topic":     {"engine/tablefile", "net/protocol", "net/remoting", "storage/vfs"},
	"engine/group":     {"engine/tablefile", "net/protocol", "net/remoting", "storage/vfs"},
	"engine/offset":    {"net/protocol", "net/remoting", "storage/vfs"},
	"engine/watermark": nil,
	"engine/timer": {
		"engine/delay", "engine/progress", "net/protocol", "storage", "storage/consumequeue",
		"storage/record", "storage/vfs", "zerocopy",
	},
	"engine/progress": {"storage/record", "storage/vfs"},
	"engine/retry":    {"net/protocol"},
	"engine/delay": {
		"engine/progress", "net/protocol", "net/remoting", "storage", "storage/consumequeue",
		"storage/record", "storage/vfs", "zerocopy",
	},
	"engine/longpoll":    nil,
	"engine/lag":         nil,
	"engine/transaction": {"net/protocol", "net/remoting", "storage", "storage/consumequeue", "storage/record", "storage/vfs", "zerocopy"},
	"engine/sqlfilter":   nil,
	"engine/pop": {
		"engine/delay", "engine/group", "engine/offset", "engine/topic", "net/protocol", "storage",
		"storage/record", "storage/vfs", "zerocopy",
	},
	"engine/filter":       {"engine/sqlfilter", "net/protocol", "storage/vfs"},
	"engine/registration": {"net/invoke", "net/protocol", "net/remoting"},
	"engine/processor":    {"engine/...", "storage/...", "net/...", "zerocopy"},
	"engine":              {"engine/...", "storage/...", "net/...", "zerocopy"},

	"nameserver/route": {"net/protocol", "net/remoting"},
	"nameserver":       {"nameserver/...", "net/...", "storage/vfs", "engine/settings"},

	"client": {"net/remoting", "net/protocol", "net/invoke", "storage/record"},
	"client/admin": {
		"client", "net/invoke", "net/protocol", "net/remoting", "storage/record",
	},
	// The one package of the client that knows the servers: it runs them for users' tests.
	"client/clienttest": {
		"client", "engine", "engine/settings", "nameserver", "net/invoke", "net/protocol", "net/remoting",
	},

	"perf/measure":    nil,
	"perf/live":       {"perf/measure"},
	"perf/report":     {"perf/measure"},
	"perf/faultproxy": {"net/protocol", "net/remoting"}, // for tests of verification
	"perf/workload":   {"client", "perf/measure", "net/invoke", "net/protocol", "net/remoting", "storage/record"},
	"perf/flame":      nil,
	"perf/server":     {"perf/measure", "perf/report"},
	"perf/scale": {
		"net/invoke", "net/protocol", "net/remoting", "perf/measure", "perf/report", "perf/server",
	},
	"perf/soak":      {"perf/measure", "perf/report", "perf/server", "storage/vfs"},
	"perf/recovery":  {"storage", "storage/record"}, // starts of stores that it makes
	"perf/retention": {"storage", "storage/record"}, // deletes from stores that it makes
	"perf/crashreal": {"net/invoke", "net/protocol", "net/remoting", "perf/server", "storage/record"},
	"perf/peer":      {"engine/interop/...", "net/...", "perf/flame", "perf/measure", "perf/report", "storage/record", "zerocopy"}, // shares the download of Apache RocketMQ

	"perf/services": {"client", "client/admin", "perf/measure", "perf/server"},

	"perf/clientpeer":      {"client"},
	"perf/clientpeer/ours": {"client"}, // its twin, theirs, is a module of its own

	"engine/interop":        nil, // its tests are checked with the other tests: they import what they test
	"engine/interop/apache": nil,
	"cmd/skylark":           {"engine/...", "nameserver/...", "client/...", "perf/...", "storage/...", "net/..."},
}

// outside lists the libraries that one place wraps for all others.
var outside = map[string][]string{
	"github.com/panjf2000/gnet/":     {"net/eventloop"},
	"golang.org/x/sys/":              {"net/eventloop", "zerocopy", "storage/vfs", "storage/mappedfile"},
	"github.com/spf13/cobra":         {"cmd/skylark"},
	"github.com/spf13/pflag":         {"cmd/skylark"},
	"github.com/HdrHistogram/":       {"perf/measure"},
	"github.com/jedib0t/go-pretty/":  {"perf/live", "perf/report"},
	"golang.org/x/perf/":             {"perf/report"},
	"github.com/pierrec/lz4/":        {"client"},
	"github.com/klauspost/compress":  {"client"},
	"github.com/dgraph-io/ristretto": {"engine/filter"},
}

// silent packages return errors; the ones above them log.
var silent = []string{"zerocopy/...", "storage/...", "net/..."}

var forbiddenNames = []string{
	"util", "utils", "common", "helper", "helpers", "base", "misc", "types", "shared",
}

// takenNames are packages of the standard library below net; a second one in this module's net folder
// would be confused with them.
var takenNames = []string{"rpc", "http", "url", "mail", "netip", "smtp", "textproto"}

type sourceFile struct {
	path   string // relative to the module, with slashes
	folder string
	test   bool
	text   []byte
	syntax *ast.File
}

// readTree parses every Go file of the module, whatever its build tags, without nested modules.
func readTree(t *testing.T) []sourceFile {
	t.Helper()
	var files []sourceFile
	err := filepath.WalkDir(".", func(name string, entry fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if entry.IsDir() {
			_, nested := os.Stat(filepath.Join(name, "go.mod"))
			if name != "." && (nested == nil || entry.Name() == "testdata" || strings.HasPrefix(entry.Name(), ".")) {
				return filepath.SkipDir
			}
			return nil
		}
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		syntax, err := parser.ParseFile(token.NewFileSet(), name, text, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			t.Errorf("%s: %v", name, err)
			return nil
		}
		slashed := filepath.ToSlash(name)
		files = append(files, sourceFile{
			path: slashed, folder: path.Dir(slashed), test: strings.HasSuffix(name, "_test.go"),
			text: text, syntax: syntax,
		})
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(files) == 0 {
		t.Fatal("no Go files below the working directory")
	}
	return files
}

// testSupport says whether a folder holds test support, which may import any package of the module.
func testSupport(folder string) bool { return strings.HasSuffix(folder, "test") }

func allowed(list []string, pkg string) bool {
	for _, pattern := range list {
		if prefix, deep := strings.CutSuffix(pattern, "/..."); deep {
			if pkg == prefix || strings.HasPrefix(pkg, prefix+"/") {
				return true
			}
		} else if pkg == pattern {
			return true
		}
	}
	return false
}

func importsOf(f sourceFile) []string {
	var out []string
	for _, spec := range f.syntax.Imports {
		if name, err := strconv.Unquote(spec.Path.Value); err == nil {
			out = append(out, name)
		}
	}
	return out
}

// Packages import only what the table says, test support too where it has a row; nothing but tests
// imports test support.
func TestImports(t *testing.T) {
	t.Parallel()
	for _, f := range readTree(t) {
		list, known := imports[f.folder]
		if f.test || testSupport(f.folder) && !known {
			continue
		}
		if !known {
			t.Errorf("%s: package %s has no row in the import table of tidy_test.go", f.path, f.folder)
			continue
		}
		for _, imported := range importsOf(f) {
			pkg, ours := strings.CutPrefix(imported, module+"/")
			switch {
			case !ours:
			case testSupport(pkg):
				t.Errorf("%s imports %s, which is for tests only", f.path, pkg)
			case !allowed(list, pkg):
				t.Errorf("%s imports %s, which %s may not", f.path, pkg, f.folder)
			}
		}
	}
}

// Each wrapped library is imported by its wrapper only, in tests too.
func TestOutsideLibraries(t *testing.T) {
	t.Parallel()
	for _, f := range readTree(t) {
		for _, imported := range importsOf(f) {
			for library, places := range outside {
				if strings.HasPrefix(imported, library) && !slices.Contains(places, f.folder) {
					t.Errorf("%s imports %s, which belongs to %v only", f.path, imported, places)
				}
			}
			if (imported == "log" || imported == "log/slog") && !f.test && allowed(silent, f.folder) {
				t.Errorf("%s imports %s: storage and net packages do not log", f.path, imported)
			}
		}
	}
}

func TestNames(t *testing.T) {
	t.Parallel()
	for _, f := range readTree(t) {
		name := strings.TrimSuffix(f.syntax.Name.Name, "_test")
		if slices.Contains(forbiddenNames, name) {
			t.Errorf("%s: no package is called %s", f.path, name)
		}
		if f.folder == "net" {
			t.Errorf("%s: no Go file sits directly in net", f.path)
		}
		if strings.HasPrefix(f.folder, "net/") && slices.Contains(takenNames, name) {
			t.Errorf("%s: the standard library has a net/%s", f.path, name)
		}
	}
}

// Every package has one comment that begins with its name, and every file the licence tag.
func TestComments(t *testing.T) {
	t.Parallel()
	const tag = "// SPDX-License-Identifier: Apache-2.0\n\n"
	commented := map[string]bool{}
	for _, f := range readTree(t) {
		if !strings.HasPrefix(string(f.text), tag) {
			t.Errorf("%s does not begin with %q", f.path, tag)
		}
		if f.test && f.folder != "." {
			continue
		}
		if _, seen := commented[f.folder]; !seen {
			commented[f.folder] = false
		}
		if f.syntax.Doc == nil {
			continue
		}
		text := f.syntax.Doc.Text()
		if !strings.HasPrefix(text, "Package "+f.syntax.Name.Name+" ") && !strings.HasPrefix(text, "Command "+path.Base(f.folder)+" ") {
			t.Errorf("%s: the package comment begins with neither \"Package %s\" nor \"Command %s\"",
				f.path, f.syntax.Name.Name, path.Base(f.folder))
		}
		if commented[f.folder] {
			t.Errorf("%s: package %s has a second comment", f.path, f.folder)
		}
		commented[f.folder] = true
	}
	for folder, done := range commented {
		if !done {
			t.Errorf("package %s has no comment", folder)
		}
	}
}

// Nothing happens at import time.
func TestNoInit(t *testing.T) {
	t.Parallel()
	for _, f := range readTree(t) {
		for _, decl := range f.syntax.Decls {
			if fn, ok := decl.(*ast.FuncDecl); ok && fn.Recv == nil && fn.Name.Name == "init" {
				t.Errorf("%s has an init function; pass tables to constructors", f.path)
			}
		}
	}
}
