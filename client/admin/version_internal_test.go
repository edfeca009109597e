// SPDX-License-Identifier: Apache-2.0

package admin

import "testing"

func TestVersionText(t *testing.T) {
	t.Parallel()
	for v, want := range map[int32]string{
		213: "V4_0_0", 232: "V4_1_0_SNAPSHOT", 317: "V4_5_2", 401: "V4_9_4", 409: "V4_9_8", 413: "V5_0_0",
		475: "V5_3_1", 479: "V5_3_3", 513: "V5_5_0", 62: "version 62", 9999: "version 9999",
	} {
		if got := versionText(v); got != want {
			t.Errorf("version %d is %s, want %s", v, got, want)
		}
	}
}
