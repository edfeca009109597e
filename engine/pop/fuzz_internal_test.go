// SPDX-License-Identifier: Apache-2.0

package pop

import (
	"os"
	"path/filepath"
	"testing"
)

// FuzzOrdersFile opens the orders on any consumerOrderInfo.json: a damaged file is set aside, and what was
// taken is written and read again without a word.
func FuzzOrdersFile(f *testing.F) {
	f.Add([]byte(`{"orderInfoCount":1,"table":{"T@G":{0:{"c":{},"cm":0,"i":60000,"l":1795976699921,"o":[5,1,1],` +
		`"ot":{},"popTime":1795976699921}}}}`))
	f.Add([]byte(`{"table":{"T":{0:null},"@":{-1:{"o":[9223372036854775807,1,-1],"i":-1}}}}`))
	f.Add([]byte(``))
	f.Fuzz(func(t *testing.T, data []byte) {
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, OrdersFileName), data, 0o600); err != nil {
			t.Fatal(err)
		}
		o, err := OpenOrders(dir, true, func(string, ...any) {})
		if err != nil {
			t.Fatal(err)
		}
		o.step(1<<60, func(string, string, int32) {})
		for key := range o.blocked {
			o.Blocked(key.topic, key.group, key.queue, "", 0, 0)
		}
		if err := o.persist(); err != nil {
			t.Fatal(err)
		}
		again, err := OpenOrders(dir, false, func(msg string, kv ...any) { t.Fatal(msg, kv) })
		if err != nil {
			t.Fatal(err)
		}
		if len(again.table) > len(o.table) {
			t.Fatalf("%d orders became %d", len(o.table), len(again.table))
		}
		if err := again.Close(); err != nil {
			t.Fatal(err)
		}
	})
}
