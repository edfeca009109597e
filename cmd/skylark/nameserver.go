// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/nameserver"
)

type nameserverFlags struct {
	serveFlags
	data, listen string
	printAll     bool
}

func (a *app) nameserverCommand() *cobra.Command {
	var f nameserverFlags
	var ignored string
	var important bool
	cmd := &cobra.Command{
		Use:     "nameserver",
		Short:   "Run a name server alone, in place of mqnamesrv",
		Example: "  skylark nameserver\n  skylark nameserver -c namesrv.conf -p",
		Args:    a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			f.printAll = f.printAll || important
			return a.nameserver(cmd.Context(), &f)
		},
	}
	a.serveFlags(cmd, &f.serveFlags)
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "directory of its files; ~/namesrv by default")
	fl.StringVar(&f.listen, "listen", "", "host:port to listen on; 0.0.0.0:9876 by default")
	fl.BoolVarP(&f.printAll, "print-all", "p", false, "print all settings and exit")
	fl.BoolVarP(&important, "print-important", "m", false, "the same as -p, as mqbroker has it")
	fl.StringVarP(&ignored, "name-server", "n", "", "taken for the sake of old scripts; has no effect")
	return cmd
}

// nameserverConfig reads the configuration file, if any.
func (a *app) nameserverConfig(path string) (nameserver.Config, error) {
	log := a.logger()
	if path == "" {
		cfg := nameserver.DefaultConfig()
		cfg.Log = log
		return cfg, nil
	}
	cfg, warnings, err := nameserver.LoadConfig(path)
	for _, w := range warnings {
		log.Warn("configuration", "path", path, "warning", w.Text)
	}
	cfg.Log = log
	return cfg, err
}

func (a *app) nameserver(ctx context.Context, f *nameserverFlags) error {
	cfg, err := a.nameserverConfig(f.config)
	if err != nil {
		return err
	}
	if f.data != "" {
		cfg.Dir = filepath.Clean(f.data)
	}
	if f.listen != "" {
		if err := checkListen("listen", f.listen); err != nil {
			return err
		}
		cfg.Listen = f.listen
	}
	if f.printAll || f.printConfig {
		origin := func(key string) string {
			if from, ok := cfg.Origins[key]; ok {
				return from
			}
			return "default"
		}
		return a.printSettings(false, origin, &cfg.Settings)
	}
	a.tuneRuntime()
	end, err := f.profile()
	if err != nil {
		return err
	}
	defer end()
	s, err := startNameServer(cfg)
	if err != nil {
		return err
	}
	if a.json {
		err = a.printJSON(map[string]any{"name_server_listen": s.Addr()})
	} else {
		_, err = fmt.Fprintf(a.stdout,
			"The Name Server boot success. serializeType=JSON, address %s\n", s.Addr())
	}
	if err != nil {
		cfg.Log.Warn("the start line could not be printed", "err", err)
	}
	return a.waitAndClose(ctx, cfg.Log, func(context.Context) error { return s.Close() })
}

// startNameServer makes and starts a name server; on error nothing is left running.
func startNameServer(cfg nameserver.Config) (*nameserver.Server, error) {
	s, err := nameserver.New(cfg)
	if err != nil {
		return nil, err
	}
	if err := s.Start(); err != nil {
		_ = s.Close()
		return nil, fmt.Errorf("%w\nIs another name server running on %s? Stop it, or choose another "+
			"address with --listen or --name-server-listen", err, cfg.Listen)
	}
	return s, nil
}
