// SPDX-License-Identifier: Apache-2.0

// Package sqlfilter compiles and evaluates the SQL92 expressions by which consumers select messages
// on their properties.
//
//	price BETWEEN 5 AND 20 AND region IN ('eu', 'us') AND NOT (vip IS NULL)
//
// Grammar, types and three-valued logic are those of RocketMQ's filter module (SelectorParser,
// ComparisonExpression, UnaryExpression, LogicExpression, ConstantExpression); testdata/golden.txt
// holds what its classes answer. Precedence, lowest first:
//
//	OR
//	AND
//	=  <>  IS [NOT] NULL
//	>  >=  <  <=  [NOT] BETWEEN  [NOT] IN  [NOT] CONTAINS  [NOT] STARTSWITH  [NOT] ENDSWITH
//	+  -  NOT (before an operand)
//
// So NOT a = 'x' means (NOT a) = 'x'. A property is a text or missing. Reading stops after the first
// whole expression: what follows is ignored if its first token is a token at all. A message matches
// when the result is true; a value that cannot be read as the number it is compared with makes the
// whole expression fail, and the message does not match.
//
// An Expression is immutable and may be used by any number of goroutines. It evaluates the property
// text of a stored record in place: one pass, no allocation. The package knows nothing of brokers.
package sqlfilter
