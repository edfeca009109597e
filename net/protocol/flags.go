// SPDX-License-Identifier: Apache-2.0

package protocol

// Bits of a message's system flag (RocketMQ's MessageSysFlag).
const (
	SysFlagCompressed  int32 = 0x001
	SysFlagMultiTags   int32 = 0x002
	SysFlagPrepared    int32 = 0x004 // half message
	SysFlagCommit      int32 = 0x008
	SysFlagRollback    int32 = 0x00c
	SysFlagBornHostV6  int32 = 0x010
	SysFlagStoreHostV6 int32 = 0x020
	SysFlagNeedUnwrap  int32 = 0x040 // the client unwraps an inner batch
	SysFlagInnerBatch  int32 = 0x080

	SysFlagTransactionMask int32 = 0x00c
	SysFlagCompressionMask int32 = 0x700
	SysFlagLZ4             int32 = 0x100
	SysFlagZSTD            int32 = 0x200
	SysFlagZlib            int32 = 0x300 // no type at all also means zlib
)

// Values of EndTransactionRequest.CommitOrRollback.
const (
	TransactionUnknown  int32 = 0
	TransactionCommit   int32 = 0x8
	TransactionRollback int32 = 0xc
)
