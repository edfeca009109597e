// SPDX-License-Identifier: Apache-2.0

package remoting

import (
	"fmt"
	"strconv"
)

// Opaque is a request id. The caller chooses it, the answer repeats it; each direction of a
// connection has its own numbers, told apart by FlagResponse. It may be negative.
type Opaque int32

// SerializeType is the form of a header, chosen frame by frame.
type SerializeType uint8

// The header forms.
const (
	JSON   SerializeType = 0
	Binary SerializeType = 1 // RocketMQ calls it ROCKETMQ
)

// String returns RocketMQ's name of the form.
func (t SerializeType) String() string {
	switch t {
	case JSON:
		return "JSON"
	case Binary:
		return "ROCKETMQ"
	}
	return strconv.Itoa(int(t))
}

// Bits of a command's flag. Other bits are zero today; test bits, never equality.
const (
	FlagResponse = 1 // an answer; otherwise a request
	FlagOneway   = 2 // a request whose sender expects no answer
)

// Language is the sender's word for its programming language. Servers show it in connection lists.
type Language int8

// The languages of RocketMQ's LanguageCode. LanguageUnknown stands for every word or number that is
// not among them, and is what Java decodes to null.
const (
	LanguageUnknown   Language = -1
	LanguageJava      Language = 0
	LanguageCPP       Language = 1
	LanguageDotNet    Language = 2
	LanguagePython    Language = 3
	LanguageDelphi    Language = 4
	LanguageErlang    Language = 5
	LanguageRuby      Language = 6
	LanguageOther     Language = 7
	LanguageHTTP      Language = 8
	LanguageGo        Language = 9
	LanguagePHP       Language = 10
	LanguageOMS       Language = 11
	LanguageRust      Language = 12
	LanguageNodeJS    Language = 13
	languageNamesSize          = 14
)

// languageNames is read only.
var languageNames = [languageNamesSize]string{
	"JAVA", "CPP", "DOTNET", "PYTHON", "DELPHI", "ERLANG", "RUBY", "OTHER", "HTTP", "GO", "PHP",
	"OMS", "RUST", "NODE_JS",
}

// String returns the word of the wire, "" for an unknown language.
func (l Language) String() string {
	if l < 0 || int(l) >= len(languageNames) {
		return ""
	}
	return languageNames[l]
}

func languageOf(word []byte) Language {
	for i, name := range languageNames {
		if string(word) == name {
			return Language(i)
		}
	}
	return LanguageUnknown
}

func languageAt(ordinal int32) Language {
	if ordinal < 0 || int(ordinal) >= len(languageNames) {
		return LanguageUnknown
	}
	return Language(ordinal)
}

// Error is a peer's mistake, or a refusal, with the code and the remark of the answer it deserves.
// A server answers it; a caller gets it back from an answer that is not a success.
type Error struct {
	Code   ResponseCode
	Remark string
}

// Errorf returns an Error with a formatted remark.
func Errorf(code ResponseCode, format string, args ...any) *Error {
	return &Error{Code: code, Remark: fmt.Sprintf(format, args...)}
}

// Error returns code, name and remark.
func (e *Error) Error() string {
	return "remoting: code " + strconv.Itoa(int(e.Code)) + " " + e.Code.String() + ": " + e.Remark
}
