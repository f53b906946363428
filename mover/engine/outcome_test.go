package engine

import (
	"testing"

	"github.com/stretchr/testify/assert"
)

func TestWhatVanishedIsLeftToTheNextRunWhileTheApplicationRuns(t *testing.T) {
	vanished := Outcome{Code: someNotCopied, Complaints: `rsync: [sender] link_stat "/volume/a" failed: No such file or directory (2); rsync error: some files/attrs were not transferred (see previous errors) (code 23)`}
	for variant, forgiven := range map[Variant]bool{Live: true, Redo: true, All: false} {
		assert.Equal(t, forgiven, judge(variant, vanished, Outcome{}) == nil, variant)
		there := Outcome{Code: someNotCopied, Complaints: `rsync: [receiver] rsync_xal_set: lsetxattr("a","security.ima") failed: Operation not permitted (1)`}
		assert.ErrorContains(t, judge(variant, Outcome{Code: someNotCopied}, there), "Operation not permitted", variant)
	}
	assert.NoError(t, judge(Redo, Outcome{Code: someVanished}, Outcome{}))
	assert.ErrorIs(t, judge(Live, Outcome{}, Outcome{Code: 11, Complaints: "write failed: No space left on device (28)"}), ErrNoSpace)
}
