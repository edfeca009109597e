// SPDX-License-Identifier: Apache-2.0

// Package apache fetches Apache RocketMQ from Maven Central and starts its programs, for the interop
// tests and for side-by-side measurements.
//
// Install keeps what it fetched and compiled in the user's cache directory, so that later runs need no
// network. Nothing here is used by the servers.
package apache

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
)

// Version is the release of Apache RocketMQ that the Maven project pins.
const Version = "5.5.0"

// Installation holds the jars of Apache RocketMQ and the compiled classes of the Maven project.
// It is constant after Install and may be used by any goroutine.
type Installation struct {
	dir string
}

// Available says whether java and mvn are on the path; if not, what is missing.
func Available() (ok bool, missing string) {
	for _, program := range []string{"java", "mvn"} {
		if _, err := exec.LookPath(program); err != nil {
			return false, program
		}
	}
	return true, ""
}

// Install builds the Maven project in the folder project, with its dependencies, unless the cache has
// the result for exactly these sources. It takes a minute when it must fetch. What Maven prints goes
// to log.
func Install(ctx context.Context, project string, log io.Writer) (*Installation, error) {
	return InstallRelease(ctx, project, Version, log)
}

// InstallRelease is Install for another release than the project names.
func InstallRelease(
	ctx context.Context, project, version string, log io.Writer,
) (*Installation, error) {
	key, err := fingerprint(project)
	if err != nil {
		return nil, fmt.Errorf("apache: read the sources in %s: %w", project, err)
	}
	cache, err := os.UserCacheDir()
	if err != nil {
		cache = os.TempDir()
	}
	final := filepath.Join(cache, "skylark", "rocketmq-"+version+"-"+key)
	if _, err := os.Stat(filepath.Join(final, "lib")); err == nil {
		return &Installation{dir: final}, nil
	}
	if err := os.MkdirAll(filepath.Dir(final), 0o755); err != nil {
		return nil, fmt.Errorf("apache: make the cache directory: %w", err)
	}
	// Built aside and renamed, so that two runs at once or an interrupted one leave no half result.
	work, err := os.MkdirTemp(filepath.Dir(final), "build-*")
	if err != nil {
		return nil, fmt.Errorf("apache: make a work directory: %w", err)
	}
	defer func() { _ = os.RemoveAll(work) }()
	if err := maven(ctx, project, version, work, log, "-o"); err != nil {
		// The local repository does not have everything.
		if err := maven(ctx, project, version, work, log); err != nil {
			return nil, fmt.Errorf("apache: build %s with Maven: %w", project, err)
		}
	}
	if err := os.Rename(work, final); err != nil && !errors.Is(err, fs.ErrExist) {
		if _, statErr := os.Stat(filepath.Join(final, "lib")); statErr != nil {
			return nil, fmt.Errorf("apache: keep the result: %w", err)
		}
	}
	return &Installation{dir: final}, nil
}

// fingerprint names the sources by a hash of their names and bytes.
func fingerprint(project string) (string, error) {
	hash := sha256.New()
	err := filepath.WalkDir(project, func(name string, entry fs.DirEntry, err error) error {
		if err != nil || entry.IsDir() {
			return err
		}
		text, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(project, name)
		if err != nil {
			return err
		}
		fmt.Fprintf(hash, "%s %d\n", filepath.ToSlash(relative), len(text))
		_, err = hash.Write(text)
		return err
	})
	return hex.EncodeToString(hash.Sum(nil))[:12], err
}

func maven(
	ctx context.Context, project, version, work string, log io.Writer, extra ...string,
) error {
	args := append([]string{
		"-q", "-B", "-Dstyle.color=never", "-f", filepath.Join(project, "pom.xml"), "-DbuildDirectory=" + work,
		"-Drocketmq.version=" + version,
	}, extra...)
	cmd := exec.CommandContext(ctx, "mvn", append(args, "package")...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Run()
}

// Command makes the command that runs a main class with the JVM options and arguments. home takes the
// place of the user's home directory, where the programs write logs and small files.
func (i *Installation) Command(ctx context.Context, home, mainClass string, jvm, args []string) *exec.Cmd {
	line := []string{
		// The servers reach into the JDK for direct buffers; JDK 9 and later must be told to let them.
		"--add-exports", "java.base/jdk.internal.ref=ALL-UNNAMED",
		"--add-opens", "java.base/java.nio=ALL-UNNAMED",
		"--add-exports", "java.base/sun.nio.ch=ALL-UNNAMED",
		"--add-opens", "java.base/sun.nio.ch=ALL-UNNAMED",
		"-Djava.net.preferIPv4Stack=true",
		"-Dfile.encoding=UTF-8", // as on hosts with a locale; without one it would be ASCII
		"-Duser.home=" + home,
	}
	line = append(line, jvm...)
	line = append(line, "-cp", filepath.Join(i.dir, "classes")+":"+filepath.Join(i.dir, "lib")+"/*", mainClass)
	cmd := exec.CommandContext(ctx, "java", append(line, args...)...)
	cmd.Env = append(os.Environ(), "ROCKETMQ_HOME="+home)
	return cmd
}
