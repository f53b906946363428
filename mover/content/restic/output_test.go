package restic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestHowResticEndedIsOneSentence(t *testing.T) {
	for name, row := range map[string]struct {
		verb operation
		code int
		said string
		done bool
		want string
	}{
		"well":           {verb: backup},
		"files vanished": {verb: backup, code: 3, said: "lstat: no such file", done: true},
		"nothing was saved": {verb: backup, code: 3, said: "lstat: no such file",
			want: "cannot be used: restic ended with status 3: lstat"},
		"the repository is gone": {verb: backup, code: 10, want: "somebody has removed it"},
		"another password":       {verb: checkRepository, code: 12, want: "has another password"},
		"credentials of a REST server": {verb: checkRepository, code: 1, said: "Fatal: unexpected HTTP response (401): 401 Unauthorized",
			want: "it refuses the credentials"},
		"credentials of a bucket": {verb: checkRepository, code: 1,
			said: "Stat: The AWS Access Key Id you provided does not exist: InvalidAccessKeyId", want: "it refuses the credentials"},
		"a full store": {verb: backup, code: 1, said: "unexpected HTTP response (507): 507 Insufficient Storage",
			want: "it is full"},
		"a certificate": {verb: checkRepository, code: 1, said: "x509: certificate signed by unknown authority",
			want: "into the key ca.crt"},
		"out of reach": {verb: restore, code: 1, said: "dial tcp: connect: connection refused", done: true,
			want: "it cannot be reached now"},
		"a full volume": {verb: restore, code: 1, said: "write a: no space left on device", done: true,
			want: "the target volume is full"},
		"a file that cannot be written":  {verb: restore, code: 1, said: "/a: is a directory", done: true, want: "did not write all files: /a"},
		"a restore that did not come on": {verb: restore, code: 1, said: "panic", want: "cannot be used: restic ended with status 1: panic"},
		"killed":                         {verb: restore, code: -1, want: "gave no reason"},
	} {
		t.Run(name, func(t *testing.T) {
			err := outcomeError(row.verb, row.code, row.said, row.done)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
	var unusable *Error
	require.ErrorAs(t, errNoRepository, &unusable)
	require.ErrorAs(t, outcomeError(backup, 1, "connection refused", false), &unusable)
	require.NotErrorAs(t, outcomeError(restore, 1, "no space left on device", true), &unusable)
}

func TestWhatResticSaysIsUnderstood(t *testing.T) {
	var done int64
	var retrying string
	output := Output{Progress: func(n int64) { done = n }, Retrying: func(why string) { retrying = why }}
	counts := &outputCounts{}
	stdout := lineWriter{line: output.stdoutLine, counts: counts}
	stderr := lineWriter{line: output.stderrLine, counts: counts}
	fmt.Fprint(&stdout, `{"message_type":"status","bytes_do`)
	fmt.Fprint(&stdout, "ne\":5}\nno JSON\n"+strings.Repeat("x", maxLine*2)+"\n")
	assert.EqualValues(t, 5, done)
	fmt.Fprintln(&stdout, `{"message_type":"status","bytes_restored":7}`)
	assert.EqualValues(t, 7, done)
	fmt.Fprintln(&stdout, `{"message_type":"summary","snapshot_id":"abc","data_added_packed":9}`)
	assert.Equal(t, summary{Snapshot: "abc", Packed: 9}, output.summary)
	assert.True(t, output.ended)

	fmt.Fprintln(&stderr, `Save(<data/1>) returned error, retrying after 1.5s: connection refused`)
	assert.Equal(t, "connection refused", retrying)
	for i := range 9 {
		fmt.Fprintf(&stderr, `{"message_type":"error","error":{"message":"bad"},"item":"/%d"}`+"\n", i)
	}
	fmt.Fprintln(&stderr, `{"message_type":"exit_error","code":1,"message":"Fatal: the end\nmore"}`)
	assert.Equal(t, "Save(<data/1>) returned error, retrying after 1.5s: connection refused; /0: bad; /1: bad; Fatal: the end",
		output.complaints())
}
