// SPDX-License-Identifier: Apache-2.0

package nameserver

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/nameserver/route"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// DefaultPort is where name servers listen.
const DefaultPort = 9876

// Config sets up a name server. Start from DefaultConfig or LoadConfig.
type Config struct {
	// Listen is host:port, port 0 takes a free one; "" is bindAddress and listenPort.
	Listen string
	// Dir holds kvConfig.json and namesrv.properties; "" is ~/namesrv, as in RocketMQ.
	Dir string
	// Backend is that of package eventloop; "" is the best one for the platform.
	Backend string
	// Log receives start, stop and changes of brokers; nil discards.
	Log *slog.Logger
	// Origins says for each key that was not left at its default where its value came from.
	Origins map[string]string

	Settings
}

// Settings are the keys of RocketMQ's namesrv.conf that mean something here.
type Settings struct {
	BindAddress string `key:"bindAddress" important:"true"`
	ListenPort  int    `key:"listenPort" min:"0" max:"65535" important:"true"`

	// KVConfigPath and ConfigStorePath default to files in Config.Dir.
	KVConfigPath    string `key:"kvConfigPath" important:"true"`
	ConfigStorePath string `key:"configStorePath" important:"true"`

	OrderMessageEnable bool `key:"orderMessageEnable"`
	ReturnOrderConfig  bool `key:"returnOrderTopicConfigToBroker"`
	SupportActing      bool `key:"supportActingMaster" important:"true"`
	EnableAllTopicList bool `key:"enableAllTopicList"`
	EnableTopicList    bool `key:"enableTopicList"`
	NotifyMinBrokerID  bool `key:"notifyMinBrokerIdChanged"`
	NeedWait           bool `key:"needWaitForService"`
	WaitSeconds        int  `key:"waitSecondsForService" min:"0"`
	DeleteTopics       bool `key:"deleteTopicWithBrokerRegistration"`

	ScanIntervalMS int64  `key:"scanNotActiveBrokerInterval" min:"10"`
	BlackList      string `key:"configBlackList"`

	IdleSeconds     int `key:"serverChannelMaxIdleTimeSeconds" min:"1"`
	ShutdownSeconds int `key:"shutdownWaitTimeSeconds" min:"0"`
}

// DefaultConfig returns RocketMQ's defaults.
func DefaultConfig() Config {
	return Config{Settings: Settings{
		BindAddress:        "0.0.0.0",
		ListenPort:         DefaultPort,
		ReturnOrderConfig:  true,
		EnableAllTopicList: true,
		EnableTopicList:    true,
		WaitSeconds:        45,
		ScanIntervalMS:     5000,
		BlackList:          "configBlackList;configStorePath;kvConfigPath",
		IdleSeconds:        120,
		ShutdownSeconds:    30,
	}}
}

// LoadConfig reads a namesrv.conf over the defaults. Updates at run time are saved to the same
// file, as in RocketMQ. The warnings name keys that have no effect; unknown keys and bad values
// are an error with line and nearest name.
func LoadConfig(path string) (Config, []settings.Warning, error) {
	cfg := DefaultConfig()
	file, err := settings.Load(path)
	if err != nil {
		return cfg, nil, fmt.Errorf("nameserver: load configuration: %w", err)
	}
	report, err := settings.Apply(&cfg.Settings, file, knownKeys())
	if err != nil {
		return cfg, report.Warnings, fmt.Errorf("nameserver: load configuration: %w", err)
	}
	if cfg.ConfigStorePath == "" {
		cfg.ConfigStorePath = path
	}
	cfg.noteOrigins(report.Set, path)
	return cfg, report.Warnings, nil
}

func (c *Config) noteOrigins(keys []string, from string) {
	if c.Origins == nil {
		c.Origins = map[string]string{}
	}
	for _, key := range keys {
		c.Origins[key] = from
	}
}

// complete fills in what depends on other fields and reads the file of earlier updates.
func (c *Config) complete() error {
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Dir == "" && (c.KVConfigPath == "" || c.ConfigStorePath == "") {
		home, err := os.UserHomeDir()
		if err != nil {
			return fmt.Errorf("nameserver: find the folder for files: %w", err)
		}
		c.Dir = filepath.Join(home, "namesrv")
	}
	if c.KVConfigPath == "" {
		c.KVConfigPath = filepath.Join(c.Dir, "kvConfig.json")
	}
	if c.ConfigStorePath == "" {
		c.ConfigStorePath = filepath.Join(c.Dir, "namesrv.properties")
		if err := c.loadUpdates(); err != nil {
			return err
		}
	}
	if c.Listen == "" {
		c.Listen = net.JoinHostPort(c.BindAddress, strconv.Itoa(c.ListenPort))
	}
	return nil
}

// loadUpdates reads what earlier updates at run time saved; a file given by -c was read already.
// Addresses and paths in it are left alone: they come from the caller.
func (c *Config) loadUpdates() error {
	var file *settings.File
	_, err := vfs.LoadJSONFile(c.ConfigStorePath, func(data []byte) error {
		f, err := settings.Parse(c.ConfigStorePath, data)
		if err == nil && len(f.Entries) == 0 {
			err = errors.New("no settings in it")
		}
		file = f
		return err
	})
	if errors.Is(err, fs.ErrNotExist) || (err == nil && file == nil) {
		return nil
	}
	if err != nil {
		return fmt.Errorf("nameserver: load saved configuration: %w", err)
	}
	kept := &settings.File{Path: file.Path}
	for _, e := range file.Entries {
		if !c.fixed(e.Key) {
			kept.Entries = append(kept.Entries, e)
		}
	}
	report, err := settings.ApplyLenient(&c.Settings, kept, knownKeys())
	if err != nil {
		return fmt.Errorf("nameserver: load saved configuration: %w", err)
	}
	c.noteOrigins(report.Set, c.ConfigStorePath)
	return nil
}

// fixed reports whether a key cannot change at run time: the black list, paths, and what only a
// start can bring into force.
func (s *Settings) fixed(key string) bool {
	switch key {
	case "configBlackList", "configStorePath", "kvConfigPath", "rocketmqHome", "bindAddress",
		"listenPort":
		return true
	}
	for part := range strings.SplitSeq(s.BlackList, ";") {
		if strings.TrimSpace(part) == key {
			return true
		}
	}
	return false
}

func (s *Settings) rules() route.Rules {
	return route.Rules{
		DeleteTopics:     s.DeleteTopics,
		NotifyMinID:      s.NotifyMinBrokerID,
		ShowActingMaster: s.SupportActing,
	}
}

// knownKeys are keys of RocketMQ's NamesrvConfig, NettyServerConfig, NettyClientConfig and
// ControllerConfig, which a namesrv.conf may hold, that have no effect here.
func knownKeys() map[string]bool {
	known := map[string]bool{}
	for key := range strings.FieldsSeq(knownKeyText) {
		known[key] = true
	}
	return known
}

const knownKeyText = `
rocketmqHome productEnvName clusterTest enableControllerInNamesrv
clientRequestThreadPoolNums clientRequestThreadPoolQueueCapacity
defaultThreadPoolNums defaultThreadPoolQueueCapacity unRegisterBrokerQueueCapacity

enableShutdownGracefully serverAsyncSemaphoreValue serverCallbackExecutorThreads
serverNettyWorkerGroupEnable serverOnewaySemaphoreValue serverPooledByteBufAllocatorEnable
serverSelectorThreads serverSocketBacklog serverSocketRcvBufSize serverSocketSndBufSize
serverWorkerThreads useEpollNativeSelector writeBufferHighWaterMark writeBufferLowWaterMark

channelNotActiveInterval clientAsyncSemaphoreValue clientCallbackExecutorThreads
clientChannelMaxIdleTimeSeconds clientCloseSocketIfTimeout clientOnewaySemaphoreValue
clientPooledByteBufAllocatorEnable clientSocketRcvBufSize clientSocketSndBufSize
clientWorkerThreads connectTimeoutMillis controllerDLegerGroup controllerDLegerPeers
controllerDLegerSelfId controllerRequestThreadPoolQueueCapacity controllerStorePath
controllerThreadPoolNums controllerType dLedgerAddress disableCallbackExecutor
disableNettyWorkerGroup electMasterMaxRetryCount enableElectUncleanMaster enableReconnectForGoAway
jraftConfig mappedFileSize maxReconnectIntervalTimeSeconds metricGrpcExporterIntervalInMills
metricGrpcExporterTimeOutInMills metricLoggingExporterIntervalInMills metricsExporterType
metricsGrpcExporterHeader metricsGrpcExporterTarget metricsInDelta metricsLabel
metricsPromExporterHost metricsPromExporterPort notifyBrokerRoleChanged processReadEvent
scanAvailableNameSrv scanInactiveMasterInterval socksProxyConfig useTLS
`
