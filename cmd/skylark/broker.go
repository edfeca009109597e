// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"
	"net"
	"strconv"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/storage/commitlog"
)

// brokerFlags are those of a broker, alone or together with a name server.
type brokerFlags struct {
	serveFlags
	data, listen, nameServers string
	recovery                  string
	eventLoops                int
	allowEmpty                bool
	printAll, printImportant  bool
}

func (a *app) brokerCommand() *cobra.Command {
	var f brokerFlags
	cmd := &cobra.Command{
		Use:   "broker",
		Short: "Run a broker alone, in place of mqbroker",
		Example: "  skylark broker -n '10.0.0.1:9876;10.0.0.2:9876' -c broker.conf\n" +
			"  skylark broker -c broker.conf -m",
		Args: a.noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error { return a.broker(cmd.Context(), &f) },
	}
	a.serveFlags(cmd, &f.serveFlags)
	a.brokerFlags(cmd, &f)
	fl := cmd.Flags()
	fl.StringVar(&f.data, "data", "", "directory of the store (storePathRootDir)")
	fl.StringVar(&f.listen, "listen", "", "host:port to listen on (bindAddress and listenPort)")
	fl.BoolVarP(&f.printAll, "print-all", "p", false, "print all settings and exit")
	fl.BoolVarP(&f.printImportant, "print-important", "m", false,
		"print the important settings and exit")
	return cmd
}

func (a *app) brokerFlags(cmd *cobra.Command, f *brokerFlags) {
	fl := cmd.Flags()
	fl.StringVarP(&f.nameServers, "name-server", "n", "",
		"name servers to register with, host:port separated by ';' (namesrvAddr)")
	fl.StringVar(&f.recovery, "recover", "",
		"what to do about damage in the middle of the log, instead of stopping: 'skip' does without the\n"+
			"damaged stretch, 'truncate' ends the log in front of it; both keep a copy in the store's damaged/")
	fl.IntVar(&f.eventLoops, "event-loops", 0,
		"loops that serve connections (eventLoopNums); 0: one less than the processors")
	fl.BoolVar(&f.allowEmpty, "allow-empty-tables", false,
		"start with an empty table where every copy of its file is damaged; the damaged ones are kept")
}

// brokerConfig reads file, environment and flags, in this order.
func (a *app) brokerConfig(f *brokerFlags) (engine.Config, error) {
	cfg := engine.Default()
	cfg.Logger = a.logger()
	if f.config != "" {
		warnings, err := cfg.Load(f.config, f.ignoreUnknown)
		if err != nil {
			return cfg, err
		}
		for _, w := range warnings {
			cfg.Logger.Warn("configuration", "path", f.config, "warning", w)
		}
	}
	if f.data != "" {
		cfg.StoreRoot = f.data
		cfg.Origin("storePathRootDir", "flag --data")
	}
	if f.eventLoops < 0 || f.eventLoops > 256 {
		return cfg, misuse{fmt.Errorf("--event-loops is %d, the choices are 0 to 256", f.eventLoops)}
	}
	if f.eventLoops > 0 {
		cfg.EventLoops = f.eventLoops
		cfg.Origin("eventLoopNums", "flag --event-loops")
	}
	switch f.recovery {
	case "":
	case "skip":
		cfg.Damage = commitlog.DamageSkip
	case "truncate":
		cfg.Damage = commitlog.DamageTruncate
	default:
		return cfg, misuse{fmt.Errorf("--recover is %q, the choices are skip and truncate", f.recovery)}
	}
	cfg.AllowEmpty = f.allowEmpty
	cfg.Progress = a.progress()
	return cfg, nil
}

// listenOn sets where the broker listens.
func listenOn(cfg *engine.Config, flag, addr string) error {
	if err := checkListen(flag, addr); err != nil {
		return err
	}
	host, portText, _ := net.SplitHostPort(addr) // checked above
	port, err := strconv.Atoi(portText)
	if err != nil {
		return misuse{fmt.Errorf("--%s: port %q is no number", flag, portText)}
	}
	if host == "" {
		host = "0.0.0.0"
	}
	cfg.BindAddress, cfg.ListenPort = host, port
	cfg.Origin("bindAddress", "flag --"+flag)
	cfg.Origin("listenPort", "flag --"+flag)
	return nil
}

func (a *app) broker(ctx context.Context, f *brokerFlags) error {
	cfg, err := a.brokerConfig(f)
	if err != nil {
		return err
	}
	cfg.Environment(a.env)
	if f.nameServers != "" {
		cfg.NameServers = f.nameServers
		cfg.Origin("namesrvAddr", "flag --name-server")
	}
	if f.listen != "" {
		if err := listenOn(&cfg, "listen", f.listen); err != nil {
			return err
		}
	}
	if f.printAll || f.printImportant || f.printConfig {
		return a.printSettings(f.printImportant && !f.printAll, cfg.OriginOf, &cfg)
	}
	a.tuneRuntime()
	end, err := f.profile()
	if err != nil {
		return err
	}
	defer end()
	b, err := engine.New(cfg)
	if err != nil {
		return err
	}
	if err := b.Start(ctx); err != nil {
		return err
	}
	adv := b.Advertised()
	if a.json {
		err = a.printJSON(map[string]any{
			"broker": b.Name(), "broker_listen": b.Addr().String(), "broker_advertised": adv.Addr,
			"broker_advertised_why": adv.Why, "name_servers": cfg.NameServers,
			"data": cfg.StoreRoot,
		})
	} else {
		_, err = fmt.Fprintf(a.stdout, "The broker[%s, %s] boot success. serializeType=JSON and name "+
			"server is %s\nlistening   %s\nadvertised  %s (%s)\ndata        %s\n",
			b.Name(), adv.Addr, cfg.NameServers, b.Addr(), adv.Addr, adv.Why, cfg.StoreRoot)
	}
	if err != nil {
		cfg.Logger.Warn("the start line could not be printed", "err", err)
	}
	return a.waitAndClose(ctx, cfg.Logger, b.Close)
}

// printSettings prints key=value lines, or with --json one object.
func (a *app) printSettings(
	important bool, origin func(string) string, structs ...any,
) error {
	if !a.json {
		return settings.Print(a.stdout, important, origin, structs...)
	}
	type value struct {
		Value string `json:"value"`
		From  string `json:"from"`
	}
	all := map[string]value{}
	for _, e := range settings.Values(structs...) {
		all[e.Key] = value{Value: e.Value, From: origin(e.Key)}
	}
	return a.printJSON(all)
}
