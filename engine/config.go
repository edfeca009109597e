// SPDX-License-Identifier: Apache-2.0

package engine

import (
	_ "embed"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/skylarkmq/skylark/engine/delay"
	"github.com/skylarkmq/skylark/engine/settings"
	"github.com/skylarkmq/skylark/storage"
	"github.com/skylarkmq/skylark/storage/vfs"
)

// Config is everything a broker can be told. Fields with a key are set by that key of broker.conf;
// the keys are RocketMQ's (BrokerConfig, MessageStoreConfig, NettyServerConfig) and mean what they
// mean there. Default gives RocketMQ's defaults. Durations end in their unit.
type Config struct {
	// Identity. An empty BrokerName becomes the host's name.
	ClusterName string `key:"brokerClusterName" important:"true"`
	BrokerName  string `key:"brokerName" important:"true"`
	BrokerID    int64  `key:"brokerId" important:"true" min:"0"`
	BrokerRole  string `key:"brokerRole" important:"true" oneof:"ASYNC_MASTER,SYNC_MASTER,SLAVE"`

	// Where it listens and what it tells others. Empty BrokerIP1: see Broker.Advertised.
	BindAddress  string `key:"bindAddress"`
	ListenPort   int    `key:"listenPort" important:"true" min:"0" max:"65535"`
	FastPort     int    `key:"fastListenPort" min:"-1" max:"65535"` // 0: listenPort - 2; -1: off
	BrokerIP1    string `key:"brokerIP1" important:"true"`
	BrokerIP2    string `key:"brokerIP2" important:"true"`
	HAListenPort int    `key:"haListenPort" min:"0" max:"65535"`
	NameServers  string `key:"namesrvAddr" important:"true"` // host:port, separated by ';'

	// What it admits.
	BrokerPermission       int32  `key:"brokerPermission" min:"0" max:"7"`
	AutoCreateTopic        bool   `key:"autoCreateTopicEnable" important:"true"`
	AutoCreateGroup        bool   `key:"autoCreateSubscriptionGroup" important:"true"`
	EnableCreateSysGroup   bool   `key:"enableCreateSysGroup"`
	DefaultTopicQueues     int32  `key:"defaultTopicQueueNums" important:"true" min:"1" max:"1024"`
	ClusterTopic           bool   `key:"clusterTopicEnable"`
	BrokerTopic            bool   `key:"brokerTopicEnable"`
	TraceTopic             bool   `key:"traceTopicEnable"`
	TraceTopicName         string `key:"msgTraceTopicName"`
	TraceOn                bool   `key:"traceOn"`
	RegionID               string `key:"regionId"`
	ReviveQueues           int32  `key:"reviveQueueNum" min:"1" max:"1024"`
	RejectPullConsumer     bool   `key:"rejectPullConsumerEnable"`
	LitePullMessage        bool   `key:"litePullMessageEnable"`
	SlaveRead              bool   `key:"slaveReadEnable"`
	StartAcceptSendMS      int64  `key:"startAcceptSendRequestTimeStamp"`
	ValidateSystemTopic    bool   `key:"validateSystemTopicWhenUpdateTopic"`
	EnableMixedMessageType bool   `key:"enableMixedMessageType"`
	ConfigBlackList        string `key:"configBlackList"`

	// Transactions and request-reply.
	RejectTransactions   bool  `key:"rejectTransactionMessage"`
	TransactionTimeOutMS int64 `key:"transactionTimeOut" min:"1"`
	TransactionCheckMS   int64 `key:"transactionCheckInterval" min:"1"`
	TransactionCheckMax  int   `key:"transactionCheckMax" min:"1"`
	TransactionOpMaxSize int   `key:"transactionOpMsgMaxSize" min:"32" max:"1048576"`
	HalfCountsMS         int64 `key:"transactionMetricFlushInterval" min:"100" max:"3600000"`
	StoreReplies         bool  `key:"storeReplyMessageEnable"`

	// Long polling.
	LongPolling      bool  `key:"longPollingEnable"`
	ShortPollingMS   int64 `key:"shortPollingTimeMills" min:"1" max:"60000"`
	HoldsMax         int   `key:"pullThreadPoolQueueCapacity" min:"1"`
	HoldMaxMS        int64 `key:"pullSuspendMaxMillis" min:"1000"` // ours: cap of a suspend time
	ServerSideResets bool  `key:"useServerSideResetOffset"`

	// Pop.
	PopRetryPercent   int    `key:"popFromRetryProbability" min:"0" max:"100"`
	PopRetryV2        bool   `key:"enableRetryTopicV2"`
	PopRetryV1Too     bool   `key:"retrieveMessageFromPopRetryTopicV1"`
	PopActualRetry    bool   `key:"popResponseReturnActualRetryTopic"`
	PopInitFromMemory bool   `key:"initPopOffsetByCheckMsgInMem"`
	RequestMode       string `key:"defaultMessageRequestMode" oneof:"PULL,POP"`
	PopShareQueues    int32  `key:"defaultPopShareQueueNum"`

	// SQL92 filters. filterCacheBytes is ours: memory of expressions that come with pulls.
	PropertyFilter    bool  `key:"enablePropertyFilter"`
	FilterRetry       bool  `key:"filterSupportRetry"`
	FilterKeepDeadMS  int64 `key:"filterDataCleanTimeSpan" min:"1000"`
	FilterErrorRate   int   `key:"maxErrorRateOfBloomFilter" min:"1" max:"49"`
	FilterConsumers   int   `key:"expectConsumerNumUseFilter" min:"1" max:"1000000"`
	FilterCacheBytes  int64 `key:"filterCacheBytes" min:"65536"`
	FilterMessageSize int   `key:"maxFilterMessageSize" min:"20" max:"16777216"`

	// Clients.
	ChannelExpiredMS      int64 `key:"channelExpiredTimeout" min:"1000"`
	SubscriptionExpiredMS int64 `key:"subscriptionExpiredTimeout" min:"1000"`
	NotifyConsumerChange  bool  `key:"notifyConsumerIdsChangedEnable"`
	RegisterProducer      bool  `key:"enableRegisterProducer"`
	RefuseDifferent       bool  `key:"refuseDifferentSubscriptions"`   // ours
	FromLastStrict        bool  `key:"consumeFromLastStrict"`          // ours
	StuckMS               int64 `key:"consumerStuckMillis" min:"1000"` // ours: warn of consumers that stand still
	IdleSeconds           int64 `key:"serverChannelMaxIdleTimeSeconds" min:"1"`
	FlushOffsetMS         int64 `key:"flushConsumerOffsetInterval" min:"100"`
	OffsetVersionStep     int64 `key:"consumerOffsetUpdateVersionStep" min:"1"`

	// Work off the event loops, and the loops themselves (the last four keys are ours).
	AdminThreads  int    `key:"adminBrokerThreadPoolNums" min:"1" max:"256"`
	AdminQueue    int    `key:"adminBrokerThreadPoolQueueCapacity" min:"1"`
	ColdReaders   int    `key:"coldReaderNums" min:"1" max:"64"`
	ColdQueue     int    `key:"coldReaderQueueCapacity" min:"1"`
	EventLoops    int    `key:"eventLoopNums" min:"0" max:"256"`
	NetBackend    string `key:"netBackend"`
	MaxConns      int    `key:"maxConnections" min:"1"`
	TCPCongestion string `key:"tcpCongestion"`

	// Name servers.
	RegisterPeriodMS  int64 `key:"registerNameServerPeriod" min:"10000" max:"60000"`
	RegisterTimeoutMS int64 `key:"registerBrokerTimeoutMills" min:"100"`
	ForceRegister     bool  `key:"forceRegister"`

	// The store.
	StoreRoot           string `key:"storePathRootDir" important:"true"`
	CommitLogDir        string `key:"storePathCommitLog" important:"true"`
	CommitLogReadOnly   string `key:"readOnlyCommitLogStorePaths"`
	StoreType           string `key:"storeType" oneof:"default"`
	CommitLogFileSize   int64  `key:"mappedFileSizeCommitLog" min:"65536" max:"2147483647"`
	QueueFileSize       int64  `key:"mappedFileSizeConsumeQueue" min:"20" max:"2147483647"`
	BatchFileSize       int64  `key:"mapperFileSizeBatchConsumeQueue" min:"46" max:"2147483647"`
	IndexSlots          int32  `key:"maxHashSlotNum" min:"1"`
	IndexEntries        int32  `key:"maxIndexNum" min:"2"`
	IndexEnable         bool   `key:"messageIndexEnable"`
	QueryMax            int    `key:"defaultQueryMaxNum" min:"1"`
	MaxMessageSize      int    `key:"maxMessageSize" important:"true" min:"10" max:"67108864"`
	FlushDiskType       string `key:"flushDiskType" important:"true" oneof:"ASYNC_FLUSH,SYNC_FLUSH"`
	FlushIntervalMS     int64  `key:"flushIntervalCommitLog" min:"1"`
	FlushLeastPages     int    `key:"flushCommitLogLeastPages" min:"0"`
	FlushThoroughMS     int64  `key:"flushCommitLogThoroughInterval" min:"1"`
	SyncFlushTimeoutMS  int64  `key:"syncFlushTimeout" min:"1"`
	PrewriteLog         bool   `key:"prewriteCommitLogEnable"` // ours: zeros ahead of the log with SYNC_FLUSH
	TransferBytesMemory int    `key:"maxTransferBytesOnMessageInMemory" min:"1"`
	TransferCountMemory int    `key:"maxTransferCountOnMessageInMemory" min:"1"`
	TransferBytesDisk   int    `key:"maxTransferBytesOnMessageInDisk" min:"1"`
	TransferCountDisk   int    `key:"maxTransferCountOnMessageInDisk" min:"1"`
	MemoryMaxRatio      int    `key:"accessMessageInMemoryMaxRatio" min:"1" max:"95"`
	DiskWarningRatio    int    `key:"diskSpaceWarningLevelRatio"`
	DiskCleanRatio      int    `key:"diskSpaceCleanForciblyRatio" min:"1" max:"95"`
	DiskMaxUsedRatio    int    `key:"diskMaxUsedSpaceRatio" min:"1" max:"95"`
	FileReservedHours   int64  `key:"fileReservedTime" min:"0" max:"876000"`
	DeleteWhen          string `key:"deleteWhen"`
	CleanForcibly       bool   `key:"cleanFileForciblyEnable"`
	CleanIntervalMS     int64  `key:"cleanResourceInterval" min:"100" max:"86400000"`
	DeletePauseMS       int64  `key:"deleteCommitLogFilesInterval" min:"0" max:"60000"`
	DeleteBatchMax      int    `key:"deleteFileBatchMax" min:"1"`
	DeleteUnconsumed    string `key:"deleteUnconsumed" oneof:"warn,hold,delete"`    // ours
	BallastBytes        int64  `key:"ballastFileSize" min:"-1" max:"1099511627776"` // ours
	DelayLevels         string `key:"messageDelayLevel"`
	FlushDelayOffsetMS  int64  `key:"flushDelayOffsetInterval" min:"100" max:"3600000"`
	TimerWheel          bool   `key:"timerWheelEnable"`
	TimerPrecisionMS    int64  `key:"timerPrecisionMs" min:"10" max:"3600000"`
	TimerMaxDelaySec    int64  `key:"timerMaxDelaySec" min:"1" max:"604800"`
	TimerRollSlots      int64  `key:"timerRollWindowSlot"`
	TimerFlushMS        int64  `key:"timerFlushIntervalMs" min:"100" max:"3600000"`
	TimerLogFileSize    int64  `key:"mappedFileSizeTimerLog" min:"4096" max:"2147483647"`
	RecallMessage       bool   `key:"recallMessageEnable"`
	RecallUnwritable    bool   `key:"allowRecallWhenBrokerNotWriteable"`

	// Path is the file these values came from; dynamic updates are written back to it.
	Path string
	// Progress is told how far the reading of the log is at the start; nil: the log is.
	Progress func(done, total int64)
	// Damage says what to do about damaged records in the middle of the log (--recover).
	Damage storage.Damage
	// AllowEmpty starts with empty tables where every copy of a JSON file is damaged.
	AllowEmpty bool
	// Lock is the lock of StoreRoot when the caller has taken it (storage.LockDir) to use the
	// directory itself before; Start takes it over. Nil: Start takes it.
	Lock *vfs.Lock
	// Logger gets the start, stop, recovery and route lines. Nil: slog.Default.
	Logger *slog.Logger

	origins map[string]string // key -> where its value came from
}

// Default is RocketMQ 5.5.0's configuration, with the store in ~/store.
func Default() Config {
	home, err := os.UserHomeDir()
	if err != nil {
		home = "."
	}
	return Config{
		ClusterName: "DefaultCluster", BrokerRole: "ASYNC_MASTER",
		BindAddress: "0.0.0.0", ListenPort: 10911,
		BrokerPermission: 6, AutoCreateTopic: true, AutoCreateGroup: true,
		EnableCreateSysGroup: true, DefaultTopicQueues: 8, ClusterTopic: true, BrokerTopic: true,
		TraceTopicName: "RMQ_SYS_TRACE_TOPIC", TraceOn: true, RegionID: "DefaultRegion",
		ReviveQueues: 8, LitePullMessage: true, ValidateSystemTopic: true,
		ConfigBlackList:      "configBlackList;brokerConfigPath",
		TransactionTimeOutMS: 6000, TransactionCheckMS: 30000, TransactionCheckMax: 15,
		TransactionOpMaxSize: 4096, HalfCountsMS: 10000, StoreReplies: true,
		LongPolling: true, ShortPollingMS: 1000, HoldsMax: 100000, HoldMaxMS: 300000,
		ServerSideResets: true,
		PopRetryPercent:  20, PopRetryV1Too: true, PopInitFromMemory: true, RequestMode: "PULL",
		PopShareQueues:   -1,
		FilterKeepDeadMS: 24 * 3600 * 1000, FilterErrorRate: 20, FilterConsumers: 32,
		FilterCacheBytes: 8 << 20, FilterMessageSize: 16000,
		ChannelExpiredMS: 120000, SubscriptionExpiredMS: 600000, NotifyConsumerChange: true,
		StuckMS:          120000,
		RegisterProducer: true, IdleSeconds: 120, FlushOffsetMS: 5000, OffsetVersionStep: 500,
		AdminThreads: 16, AdminQueue: 10000, ColdReaders: 4, ColdQueue: 1024, MaxConns: 100000,
		TCPCongestion:    "cubic",
		RegisterPeriodMS: 30000, RegisterTimeoutMS: 24000, ForceRegister: true,
		StoreRoot: filepath.Join(home, "store"), StoreType: "default",
		CommitLogFileSize: 1 << 30, QueueFileSize: 6000000, BatchFileSize: 13800000,
		IndexSlots: 5000000, IndexEntries: 20000000, IndexEnable: true, QueryMax: 32, MaxMessageSize: 4 << 20,
		FlushDiskType: "ASYNC_FLUSH", FlushIntervalMS: 500, FlushLeastPages: 4,
		FlushThoroughMS: 10000, SyncFlushTimeoutMS: 5000, PrewriteLog: true,
		TransferBytesMemory: 262144, TransferCountMemory: 32,
		TransferBytesDisk: 65536, TransferCountDisk: 8, MemoryMaxRatio: 40,
		DiskWarningRatio: 90, DiskCleanRatio: 85, DiskMaxUsedRatio: 75, FileReservedHours: 72,
		DeleteWhen: "04", CleanForcibly: true, CleanIntervalMS: 10000, DeletePauseMS: 100,
		DeleteBatchMax: 10, DeleteUnconsumed: "warn", BallastBytes: -1, TimerWheel: true,
		DelayLevels: delay.DefaultLevels, FlushDelayOffsetMS: 10000,
		TimerPrecisionMS: 1000, TimerMaxDelaySec: 259200, TimerRollSlots: 172800,
		TimerFlushMS: 1000, TimerLogFileSize: 100 << 20, RecallUnwritable: true,
	}
}

//go:embed knownkeys.txt
var knownKeysText string

// knownKeys are the keys of RocketMQ 5.5.0 and of earlier releases; those without a field here
// are warned about.
func knownKeys() map[string]bool {
	known := make(map[string]bool)
	for key := range strings.FieldsSeq(knownKeysText) {
		known[key] = true
	}
	return known
}

// Load reads broker.conf over c. A key that RocketMQ knows and this broker does not have is a
// warning, any other unknown key or a bad value an error naming line and nearest key, unless
// ignoreUnknown turns unknown keys into warnings too. Nothing is changed on error.
func (c *Config) Load(path string, ignoreUnknown bool) (warnings []string, err error) {
	file, err := settings.Load(path)
	if err != nil {
		return nil, err
	}
	apply := settings.Apply
	if ignoreUnknown {
		apply = settings.ApplyLenient
	}
	report, err := apply(c, file, knownKeys())
	if err != nil {
		return nil, err
	}
	for _, w := range report.Warnings {
		warnings = append(warnings, w.Text)
	}
	for _, key := range report.Set {
		c.Origin(key, path)
	}
	c.Path = path
	return warnings, nil
}

// Environment applies the variables that RocketMQ users already set: NAMESRV_ADDR.
func (c *Config) Environment(lookup func(string) (string, bool)) {
	if addr, ok := lookup("NAMESRV_ADDR"); ok && c.NameServers == "" {
		c.NameServers = addr
		c.Origin("namesrvAddr", "environment NAMESRV_ADDR")
	}
}

// Origin notes where the value of a key came from, for --print-config.
func (c *Config) Origin(key, from string) {
	if c.origins == nil {
		c.origins = make(map[string]string)
	}
	c.origins[key] = from
}

// OriginOf says where the value of a key came from; "default" when nobody set it.
func (c *Config) OriginOf(key string) string {
	if from, ok := c.origins[key]; ok {
		return from
	}
	return "default"
}

// complete fills what follows from other fields and checks what no single field can.
func (c *Config) complete() error {
	if c.BrokerName == "" {
		host, err := os.Hostname()
		if err != nil {
			host = "DEFAULT_BROKER"
		}
		c.BrokerName = host
	}
	if c.CommitLogDir == "" {
		c.CommitLogDir = filepath.Join(c.StoreRoot, "commitlog")
	}
	if c.Logger == nil {
		c.Logger = slog.Default()
	}
	var errs []error
	if c.BrokerRole == "SLAVE" {
		errs = append(errs, errors.New("brokerRole SLAVE: replication is not available on this "+
			"broker yet; start it as ASYNC_MASTER"))
	} else if c.BrokerID != 0 {
		errs = append(errs, fmt.Errorf("brokerId %d: a master has brokerId 0", c.BrokerID))
	}
	if _, err := storage.ParseHours(c.DeleteWhen); err != nil {
		errs = append(errs, err)
	}
	if _, err := delay.ParseLevels(c.DelayLevels); err != nil {
		errs = append(errs, err)
	}
	if c.FlushDiskType == "SYNC_FLUSH" && c.SyncFlushTimeoutMS > 60000 {
		errs = append(errs, fmt.Errorf("syncFlushTimeout %d: at most 60000, or clients give up long "+
			"before they are answered", c.SyncFlushTimeoutMS))
	}
	for addr := range strings.SplitSeq(c.NameServers, ";") {
		if addr = strings.TrimSpace(addr); addr == "" {
			continue
		}
		if _, _, err := net.SplitHostPort(addr); err != nil {
			errs = append(errs, fmt.Errorf("namesrvAddr %q: %q is not host:port", c.NameServers, addr))
		}
	}
	if len(errs) > 0 {
		return fmt.Errorf("engine: configuration: %w", errors.Join(errs...))
	}
	return nil
}

func ms(n int64) time.Duration { return time.Duration(n) * time.Millisecond }
