// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/nameserver"
	"github.com/skylarkmq/skylark/storage"
)

const defaultData = "./skylark-data"

type serverFlags struct {
	brokerFlags
	nameServerListen, brokerListen string
}

func (a *app) serverCommand() *cobra.Command {
	var f serverFlags
	cmd := &cobra.Command{
		Use:   "server",
		Short: "Run a name server and a broker in one process",
		Long: "Runs a name server and a broker in one process. The directory given by --data is the " +
			"broker's\nstorePathRootDir; the name server's files are in its folder namesrv.",
		Example: "  skylark server\n" +
			"  skylark server --data /var/lib/skylark --name-server-listen 127.0.0.1:9876 " +
			"--broker-listen 127.0.0.1:10911",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.server(cmd.Context(), &f) },
	}
	a.serveFlags(cmd, &f.serveFlags)
	a.brokerFlags(cmd, &f.brokerFlags)
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "directory of all data; "+defaultData+" by default")
	fl.StringVar(&f.nameServerListen, "name-server-listen", "0.0.0.0:9876",
		"host:port of the name server")
	fl.StringVar(&f.brokerListen, "broker-listen", "",
		"host:port of the broker; 0.0.0.0:10911 by default")
	fl.Lookup("name-server").Usage = "further name servers to register with, " +
		"host:port separated by ';'"
	return cmd
}

// serverConfig works out both configurations. The broker's name servers are left open: the own
// one's port may be 0.
func (a *app) serverConfig(f *serverFlags) (engine.Config, nameserver.Config, error) {
	ncfg := nameserver.DefaultConfig()
	cfg, err := a.brokerConfig(&f.brokerFlags)
	if err != nil {
		return cfg, ncfg, err
	}
	if cfg.OriginOf("storePathRootDir") == "default" {
		cfg.StoreRoot = defaultData
	}
	if f.brokerListen != "" {
		if err := listenOn(&cfg, "broker-listen", f.brokerListen); err != nil {
			return cfg, ncfg, err
		}
	}
	if err := checkListen("name-server-listen", f.nameServerListen); err != nil {
		return cfg, ncfg, err
	}
	ncfg.Log = cfg.Logger
	ncfg.Listen = f.nameServerListen
	ncfg.Dir = filepath.Join(cfg.StoreRoot, "namesrv")
	return cfg, ncfg, nil
}

// register sets the name servers: the own one, and those of the file and the flag.
func (f *serverFlags) register(cfg *engine.Config, own string) {
	more := cfg.NameServers
	if f.nameServers != "" {
		more = f.nameServers
	}
	cfg.NameServers = own
	if more != "" {
		cfg.NameServers += ";" + more
	}
	cfg.Origin("namesrvAddr", "its own name server")
}

func (a *app) server(ctx context.Context, f *serverFlags) error {
	cfg, ncfg, err := a.serverConfig(f)
	if err != nil {
		return err
	}
	if f.printConfig {
		f.register(&cfg, reachable(ncfg.Listen))
		return a.printSettings(false, cfg.OriginOf, &cfg)
	}
	a.tuneRuntime()
	end, err := f.profile()
	if err != nil {
		return err
	}
	defer end()
	// The name server's files lie in the broker's directory, which another server may be using.
	if cfg.Lock, err = storage.LockDir(cfg.StoreRoot); err != nil {
		return err
	}
	names, err := startNameServer(ncfg)
	if err != nil {
		return errors.Join(err, cfg.Lock.Close())
	}
	f.register(&cfg, reachable(names.Addr()))
	b, err := engine.New(cfg)
	if err == nil {
		err = b.Start(ctx)
	}
	if err != nil {
		return errors.Join(err, names.Close(), cfg.Lock.Close())
	}
	if err := a.printServer(&cfg, names, b); err != nil {
		cfg.Logger.Warn("the start lines could not be printed", "err", err)
	}
	return a.waitAndClose(ctx, cfg.Logger, b.Close,
		func(context.Context) error { return names.Close() })
}

// printServer says where everything is and what to try next.
func (a *app) printServer(cfg *engine.Config, names *nameserver.Server, b *engine.Broker) error {
	adv := b.Advertised()
	if a.json {
		return a.printJSON(map[string]any{
			"name_server_listen": names.Addr(), "broker": b.Name(),
			"broker_listen": b.Addr().String(), "broker_advertised": adv.Addr,
			"broker_advertised_why": adv.Why, "data": cfg.StoreRoot,
		})
	}
	data, err := filepath.Abs(cfg.StoreRoot)
	if err != nil {
		data = cfg.StoreRoot
	}
	flag := ""
	if at := names.Addr(); at != "0.0.0.0:9876" && at != defaultNameServer {
		flag = " -n " + reachable(at)
	}
	_, err = fmt.Fprintf(a.stdout, "Skylark %s is ready.\n"+
		"name server  %s\n"+
		"broker       %s, listening on %s\n"+
		"clients use  %s (%s)\n"+
		"data         %s\n\n"+
		"Try next:\n  skylark send%s --topic demo --body hello\n"+
		"  skylark receive%s --topic demo --from first\n",
		version, names.Addr(), b.Name(), b.Addr(), adv.Addr, adv.Why, data, flag, flag)
	return err
}
