package rsync

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestTheReceiversArgumentsAreThoseThatRsyncAsksFor(t *testing.T) {
	if Installed() != nil {
		t.Skip("rsync is not installed")
	}
	dir := t.TempDir()
	asked := filepath.Join(dir, "asked")
	shell := filepath.Join(dir, "shell")
	require.NoError(t, os.WriteFile(shell, []byte("#!/bin/sh\nshift 2\necho \"$@\" >"+asked+"\n"), 0o755))
	for variant, arguments := range senderArguments {
		t.Run(string(variant), func(t *testing.T) {
			if variant == Redo {
				arguments = append(arguments, "--files-from=-")
			}
			// It fails because nobody answers; only the command that it requests matters.
			_ = exec.Command(program(), append(arguments, "-e", shell, dir+"/", "receiver:.")...).Run()
			content, err := os.ReadFile(asked)
			require.NoError(t, err)
			assert.Equal(t, serverArguments[variant], strings.Fields(string(content)))
		})
	}
}

func TestWhatVanishedIsLeftToTheNextRunWhileTheApplicationRuns(t *testing.T) {
	vanished := Outcome{Code: someNotCopied,
		Complaints: `rsync: [sender] link_stat "/volume/a" failed: No such file or directory (2); rsync error: some files/attrs were not transferred (see previous errors) (code 23)`}
	for variant, forgiven := range map[Variant]bool{Live: true, Redo: true, All: false} {
		assert.Equal(t, forgiven, outcomeError(variant, vanished, Outcome{}) == nil, variant)
		there := Outcome{Code: someNotCopied,
			Complaints: `rsync: [receiver] rsync_xal_set: lsetxattr("a","security.ima") failed: Operation not permitted (1)`}
		assert.ErrorContains(t, outcomeError(variant, Outcome{Code: someNotCopied}, there), "Operation not permitted", variant)
	}
	assert.NoError(t, outcomeError(Redo, Outcome{Code: someVanished}, Outcome{}))
	assert.ErrorIs(t, outcomeError(Live, Outcome{}, Outcome{Code: 11, Complaints: "write failed: No space left on device (28)"}), ErrNoSpace)
}

func TestOnlyTheTimeOfTheRootDirectoryIsForgivenToAReceiverThatIsNotRoot(t *testing.T) {
	const root = `rsync: [generator] failed to set times on "/volume/.": Operation not permitted (1)`
	const folder = `rsync: [generator] failed to set times on "/volume/a": Operation not permitted (1)`
	const temporary = `rsync: [receiver] mkstemp "/volume/a/.b.x" failed: Permission denied (13)`
	const end = "rsync error: some files/attrs were not transferred (see previous errors) (code 23) at main.c(1338) [sender=3.2.7]"
	for name, row := range map[string]struct {
		here, there Outcome
		forgiven    bool
	}{
		"said by the sender":        {Outcome{someNotCopied, root + "; " + end}, Outcome{}, true},
		"said by the receiver":      {Outcome{Code: someNotCopied}, Outcome{someNotCopied, root}, true},
		"with another folder":       {Outcome{someNotCopied, root + "; " + folder}, Outcome{}, false},
		"with another complaint":    {Outcome{someNotCopied, root}, Outcome{someNotCopied, temporary}, false},
		"of a folder":               {Outcome{someNotCopied, folder}, Outcome{}, false},
		"nothing was said":          {Outcome{Code: someNotCopied}, Outcome{}, false},
		"it ended in another way":   {Outcome{12, root}, Outcome{}, false},
		"all is well":               {Outcome{}, Outcome{}, false},
		"the receiver ended so too": {Outcome{}, Outcome{12, root}, false},
	} {
		t.Run(name, func(t *testing.T) { assert.Equal(t, row.forgiven, onlyRootTime(row.here, row.there)) })
	}
}
