// SPDX-License-Identifier: Apache-2.0

package main

import (
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/perf/workload"
)

func (a *app) perfNullServerCommand() *cobra.Command {
	listen, size := "127.0.0.1:9876", 1024
	cmd := &cobra.Command{
		Use:   "null-server",
		Short: "Answer sends and pulls with success, and do nothing else",
		Long: "Is name server and broker on one port: every topic exists, every send succeeds and is " +
			"forgotten, every\npull brings the same 32 messages. 'own cpu' of a run against it is what " +
			"the load generator itself costs,\nand its rate the most that this machine's generator can " +
			"reach.",
		Example: "  skylark perf null-server --listen 127.0.0.1:9999 &\n" +
			"  skylark perf produce -n 127.0.0.1:9999 --workload ingest-small --duration 10s",
		Args: a.noArgs,
	}
	fl := cmd.Flags()
	fl.StringVar(&listen, "listen", listen, "host:port to listen on; port 0 takes any")
	fl.IntVar(&size, "size", size, "bytes of the body of each message that a pull brings, 1 to 65536")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		if size < 1 || size > 64<<10 {
			return misuse{fmt.Errorf("--size is %d, want 1 to 65536", size)}
		}
		s, err := workload.NewNullServer(cmd.Context(), listen, size)
		if err != nil {
			return err
		}
		if a.json {
			err = a.printJSON(map[string]any{"type": "listening", "address": s.Addr()})
		} else {
			_, err = fmt.Fprintf(a.stdout, "listening on %s\n", s.Addr())
		}
		if err == nil {
			<-cmd.Context().Done()
		}
		if closed := s.Close(); err == nil {
			err = closed
		}
		return err
	}
	return cmd
}
