// SPDX-License-Identifier: Apache-2.0

package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"

	"github.com/skylarkmq/skylark/engine"
	"github.com/skylarkmq/skylark/storage"
)

func (a *app) inspectRebuildCommand() *cobra.Command {
	var config string
	cmd := &cobra.Command{
		Use:   "rebuild DIR",
		Short: "Make all queues and indexes anew from the log; no broker may be running",
		Long: "Make all queues and indexes of a stopped store anew, from its log alone. The new ones take the\n" +
			"place of the old ones when they are whole and on disk; interrupted at any moment the store opens\n" +
			"as before, or makes them at its next start. That start also does it when the folders\n" +
			"consumequeue and index have been deleted by hand.",
		Args: oneStore,
		RunE: func(cmd *cobra.Command, args []string) error {
			return a.inspectRebuild(cmd.Context(), args[0], config)
		},
	}
	cmd.Flags().StringVarP(&config, "config", "c", "",
		"the broker's configuration file; without it sizes are those of the files that are there")
	return cmd
}

func oneStore(_ *cobra.Command, args []string) error {
	if len(args) != 1 {
		return misuse{errors.New("name one store directory: what --data or storePathRootDir names")}
	}
	return nil
}

func (a *app) inspectRebuild(ctx context.Context, dir, config string) error {
	cfg := engine.Default()
	cfg.Logger = a.logger()
	if config != "" {
		if _, err := cfg.Load(config, true); err != nil {
			return err
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "commitlog")); err != nil && config == "" {
		return fmt.Errorf("%s has no folder commitlog: name the directory that storePathRootDir or --data "+
			"names, or a configuration with -c", dir)
	}
	cfg.StoreRoot = dir
	if config == "" {
		if err := sizesOf(&cfg); err != nil {
			return err
		}
	}
	cfg.Progress = a.progress()
	done, err := engine.Rebuild(ctx, cfg)
	if err != nil {
		return err
	}
	bytes := int64(done.End - done.From)
	rate := float64(bytes) / 1e6 / done.Took.Seconds()
	if a.json {
		return a.printJSON(map[string]any{
			"from": done.From, "end": done.End, "records": done.Records, "units": done.Units,
			"queues": done.Queues, "index_files": done.IndexFiles, "seconds": done.Took.Seconds(),
			"mb_per_second": rate,
		})
	}
	_, err = fmt.Fprintf(a.stdout, "rebuilt %d queues with %d entries and %d index files from %d records, "+
		"%d to %d of the log, in %v (%.0f MB/s)\n", done.Queues, done.Units, done.IndexFiles, done.Records,
		done.From, done.End, done.Took.Round(1e6), rate)
	return err
}

// sizesOf takes the sizes of files from those that are there. An index file does not say how it is
// divided: one of another size than the default needs the configuration.
func sizesOf(cfg *engine.Config) error {
	def := storage.DefaultConfig(cfg.StoreRoot)
	segment, queue, index := storage.Stored(def)
	if segment > 0 {
		cfg.CommitLogFileSize = segment
	}
	if queue > 0 {
		cfg.QueueFileSize = queue
	}
	if want := storage.IndexFileSize(def); index > 0 && index != want {
		return fmt.Errorf("index files have %d bytes, the default is %d: name the broker's configuration "+
			"with -c, for maxHashSlotNum and maxIndexNum", index, want)
	}
	return nil
}
