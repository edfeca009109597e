// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"os"
	"runtime/debug"
	"runtime/pprof"
	"time"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/storage"
)

const (
	// closeWithin bounds a graceful end.
	closeWithin = 10 * time.Second
	// gcPercent trades heap for less collection: what a broker keeps on its heap is small, and what
	// it serves lies in mappings.
	gcPercent = 400
	// memoryShare of the memory of the host or container is the heap's soft limit.
	memoryShare = 4
)

// serveFlags are common to the commands that run servers.
type serveFlags struct {
	config        string
	printConfig   bool
	ignoreUnknown bool
	cpuProfile    string
}

func (a *app) serveFlags(cmd *cobra.Command, f *serveFlags) {
	fl := cmd.Flags()
	fl.StringVarP(&f.config, "config", "c", "", "configuration file with RocketMQ's keys")
	fl.BoolVar(&f.printConfig, "print-config", false,
		"print what is in force and where each value came from, and exit")
	fl.BoolVar(&f.ignoreUnknown, "ignore-unknown-config", false,
		"warn about unknown keys of the file instead of stopping")
	fl.StringVar(&f.cpuProfile, "cpu-profile", "", "write a CPU profile of the whole run to this file")
}

// logger is what servers log to: standard error, from info on.
func (a *app) logger() *slog.Logger {
	return slog.New(slog.NewTextHandler(a.stderr, &slog.HandlerOptions{Level: slog.LevelInfo}))
}

// tuneRuntime sets the collector's pace and the heap's soft limit, unless the environment does.
func (a *app) tuneRuntime() {
	if _, set := a.env("GOGC"); !set {
		debug.SetGCPercent(gcPercent)
	}
	if _, set := a.env("GOMEMLIMIT"); !set {
		debug.SetMemoryLimit(storage.MemoryTotal() / memoryShare)
	}
}

// profile begins a CPU profile if one is asked for; the returned function ends it.
func (f *serveFlags) profile() (end func(), err error) {
	if f.cpuProfile == "" {
		return func() {}, nil
	}
	file, err := os.Create(f.cpuProfile)
	if err != nil {
		return nil, fmt.Errorf("--cpu-profile: %w", err)
	}
	if err := pprof.StartCPUProfile(file); err != nil {
		_ = file.Close()
		return nil, fmt.Errorf("--cpu-profile: %w", err)
	}
	return func() {
		pprof.StopCPUProfile()
		_ = file.Close()
	}, nil
}

// waitAndClose waits for a signal and closes in the order given, all within closeWithin.
func (a *app) waitAndClose(
	ctx context.Context, log *slog.Logger, closers ...func(context.Context) error,
) error {
	<-ctx.Done()
	log.Info("stopping", "within", closeWithin.String())
	end, cancel := context.WithTimeout(context.WithoutCancel(ctx), closeWithin)
	defer cancel()
	done := make(chan error, 1)
	go func() {
		var errs []error
		for _, c := range closers {
			errs = append(errs, c(end))
		}
		done <- errors.Join(errs...)
	}()
	select {
	case err := <-done:
		if err == nil {
			log.Info("stopped")
		}
		return err
	case <-end.Done():
		return fmt.Errorf("stopping took longer than %s: what was not finished is recovered at the "+
			"next start", closeWithin)
	}
}

// reachable turns a listen address into one that this host can connect to: the unspecified address
// becomes the first address that others may know this host by, else the loopback one.
func reachable(listen string) string {
	host, port, err := net.SplitHostPort(listen)
	if err != nil {
		return listen
	}
	ip, err := netip.ParseAddr(host)
	if err != nil || !ip.IsUnspecified() {
		return listen
	}
	addrs, err := net.InterfaceAddrs()
	if err == nil {
		for _, a := range addrs {
			p, err := netip.ParsePrefix(a.String())
			if err == nil && p.Addr().Is4() && p.Addr().IsGlobalUnicast() {
				return net.JoinHostPort(p.Addr().String(), port)
			}
		}
	}
	return net.JoinHostPort("127.0.0.1", port)
}

// checkListen refuses what is not host:port.
func checkListen(flag, value string) error {
	if _, _, err := net.SplitHostPort(value); err != nil {
		return misuse{fmt.Errorf("--%s is %q, want host:port as 0.0.0.0:9876", flag, value)}
	}
	return nil
}
