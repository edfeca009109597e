// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/client/admin"
)

// nameServerCommands are those that name servers answer.
func (a *app) nameServerCommands(f *adminFlags) []*cobra.Command {
	return []*cobra.Command{
		a.getNamesrvConfigCommand(f), a.updateNamesrvConfigCommand(f), a.updateKVCommand(f),
		a.deleteKVCommand(f), a.updateOrderConfCommand(f),
	}
}

func (a *app) getNamesrvConfigCommand(f *adminFlags) *cobra.Command {
	return a.adminLeaf(f, "getNamesrvConfig", "Show the configuration in force at name servers",
		func(ctx context.Context, ad *admin.Admin) error {
			answers, err := ad.NameServerConfig(ctx)
			if len(answers) == 0 {
				return err
			}
			for _, x := range answers {
				if err := a.printTable(x.Broker, x.Value, "=  "); err != nil {
					return err
				}
			}
			return a.partly(err)
		})
}

func (a *app) updateNamesrvConfigCommand(f *adminFlags) *cobra.Command {
	var key, value string
	cmd := a.adminLeaf(f, "updateNamesrvConfig", "Change a value of all name servers at run time",
		func(ctx context.Context, ad *admin.Admin) error {
			done, err := ad.UpdateNameServerConfig(ctx, map[string]string{key: value})
			return a.outcome("update name server config success, {}", done, err)
		})
	cmd.Flags().StringVarP(&key, "key", "k", "", "key of namesrv.conf (required)")
	cmd.Flags().StringVarP(&value, "value", "v", "", "value (required)")
	return need(cmd, "key", "value")
}

func (a *app) updateKVCommand(f *adminFlags) *cobra.Command {
	var namespace, key, value string
	cmd := a.adminLeaf(f, "updateKvConfig", "Set a key of the name servers' key-value configuration",
		func(ctx context.Context, ad *admin.Admin) error {
			done, err := ad.PutKV(ctx, namespace, key, value)
			return a.outcome("create or update kv config to namespace success, {}", done, err)
		})
	cmd.Flags().StringVarP(&namespace, "namespace", "s", "", "namespace (required)")
	cmd.Flags().StringVarP(&key, "key", "k", "", "key (required)")
	cmd.Flags().StringVarP(&value, "value", "v", "", "value (required)")
	return need(cmd, "namespace", "key", "value")
}

func (a *app) deleteKVCommand(f *adminFlags) *cobra.Command {
	var namespace, key string
	cmd := a.adminLeaf(f, "deleteKvConfig", "Remove a key of the key-value configuration",
		func(ctx context.Context, ad *admin.Admin) error {
			done, err := ad.DeleteKV(ctx, namespace, key)
			return a.outcome("delete kv config from namespace success, {}", done, err)
		})
	cmd.Flags().StringVarP(&namespace, "namespace", "s", "", "namespace (required)")
	cmd.Flags().StringVarP(&key, "key", "k", "", "key (required)")
	return need(cmd, "namespace", "key")
}

func (a *app) updateOrderConfCommand(f *adminFlags) *cobra.Command {
	var topic, method, value string
	cmd := a.adminLeaf(f, "updateOrderConf", "Set, show or remove which queues of a topic are written",
		func(ctx context.Context, ad *admin.Admin) error {
			switch method {
			case "get":
				value, err := ad.OrderConfig(ctx, topic)
				switch {
				case err != nil:
					return err
				case a.json:
					return a.printJSON(map[string]string{"topic": topic, "order_conf": value})
				}
				_, err = fmt.Fprintf(a.stdout, "get orderConf success. topic=[%s], orderConf=[%s]\n",
					topic, value)
				return err
			case "put":
				if err := required("orderConf", value); err != nil {
					return err
				}
				done, err := ad.PutOrderConfig(ctx, topic, value)
				words := "update orderConf success. topic=[" + topic + "], orderConf=[" + value + "], {}"
				return a.outcome(words, done, err)
			case "delete":
				done, err := ad.DeleteOrderConfig(ctx, topic)
				return a.outcome("delete orderConf success. topic=["+topic+"], {}", done, err)
			}
			return misuse{fmt.Errorf("--method is %q, want put, get or delete", method)}
		})
	cmd.Flags().StringVarP(&topic, "topic", "t", "", "topic (required)")
	cmd.Flags().StringVarP(&method, "method", "m", "", "put, get or delete (required)")
	cmd.Flags().StringVarP(&value, "orderConf", "v", "", "as broker-a:4;broker-b:4")
	return need(cmd, "topic", "method")
}
