package restic

import (
	"fmt"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"

	"github.com/lodestone-storage/lodestone/pkg/moverepository"
)

func store() *Store {
	shared := moverepository.Repository{URL: "s3:https://store/bucket", Credentials: map[string]string{"AWS_ACCESS_KEY_ID": "id"}}
	return &Store{Ticket: shared.For("move-0", "word"), Temporary: "/scratch/restic", Authority: "/keys/ca"}
}

func TestNothingOfTheOtherEndIsAnArgumentButASnapshot(t *testing.T) {
	s := store()
	fetched := s.arguments(call{verb: fetch, volume: "/volume", snapshot: strings.Repeat("a", 64), limit: 3 << 20})
	assert.Equal(t, []string{"--target=/volume", "--", strings.Repeat("a", 64)}, fetched[len(fetched)-3:])
	assert.Contains(t, fetched, "--limit-download=3072")
	assert.Contains(t, fetched, "--cacert=/keys/ca")
	assert.Contains(t, s.arguments(call{verb: save, limit: 1}), "--limit-upload=1", "0 would be no limit")
	for _, argument := range s.arguments(call{verb: save}) {
		assert.NotContains(t, argument, "--limit")
	}
	for _, name := range []string{"latest", "--target=/", "abcd", strings.Repeat("a", 64) + ":/", ""} {
		assert.ErrorContains(t, s.Fetch(t.Context(), "/volume", Saved{Snapshot: name}, 0, Told{}), "is no snapshot", name)
	}
}

func TestResticGetsTheStoresCredentialsAndNothingOfTheMovers(t *testing.T) {
	t.Setenv("AWS_SECRET_ACCESS_KEY", "the mover's")
	env := store().environment()
	assert.Contains(t, env, "AWS_ACCESS_KEY_ID=id")
	assert.Contains(t, env, "RESTIC_PASSWORD=word")
	assert.Contains(t, env, "RESTIC_REPOSITORY=s3:https://store/bucket/move-0")
	assert.Contains(t, env, "TMPDIR=/scratch/restic")
	assert.NotContains(t, strings.Join(env, " "), "the mover's")
}

func TestHowResticEndedIsOneSentence(t *testing.T) {
	for name, row := range map[string]struct {
		verb verb
		code int
		said string
		done bool
		want string
	}{
		"well":                           {verb: save},
		"files vanished":                 {verb: save, code: 3, said: "lstat: no such file", done: true},
		"nothing was saved":              {verb: save, code: 3, said: "lstat: no such file", want: "cannot be used: restic ended with status 3: lstat"},
		"the repository is gone":         {verb: save, code: 10, want: "somebody has removed it"},
		"another password":               {verb: look, code: 12, want: "has another password"},
		"credentials of a REST server":   {verb: look, code: 1, said: "Fatal: unexpected HTTP response (401): 401 Unauthorized", want: "it refuses the credentials"},
		"credentials of a bucket":        {verb: look, code: 1, said: "Stat: The AWS Access Key Id you provided does not exist: InvalidAccessKeyId", want: "it refuses the credentials"},
		"a full store":                   {verb: save, code: 1, said: "unexpected HTTP response (507): 507 Insufficient Storage", want: "it is full"},
		"a certificate":                  {verb: look, code: 1, said: "x509: certificate signed by unknown authority", want: "into the key ca.crt"},
		"out of reach":                   {verb: fetch, code: 1, said: "dial tcp: connect: connection refused", done: true, want: "it cannot be reached now"},
		"a full volume":                  {verb: fetch, code: 1, said: "write a: no space left on device", done: true, want: "the target volume is full"},
		"a file that cannot be written":  {verb: fetch, code: 1, said: "/a: is a directory", done: true, want: "did not write all files: /a"},
		"a restore that did not come on": {verb: fetch, code: 1, said: "panic", want: "cannot be used: restic ended with status 1: panic"},
		"killed":                         {verb: fetch, code: -1, want: "gave no reason"},
	} {
		t.Run(name, func(t *testing.T) {
			err := judge(row.verb, row.code, row.said, row.done)
			if row.want == "" {
				require.NoError(t, err)
				return
			}
			require.ErrorContains(t, err, row.want)
		})
	}
	var unusable *Error
	require.ErrorAs(t, errNoRepository, &unusable)
	require.ErrorAs(t, judge(save, 1, "connection refused", false), &unusable)
	require.NotErrorAs(t, judge(fetch, 1, "no space left on device", true), &unusable)
}

func TestWhatResticSaysIsUnderstood(t *testing.T) {
	var done int64
	var waits string
	told := Told{Done: func(n int64) { done = n }, Waits: func(why string) { waits = why }}
	heard := &ears{}
	output := watcher{line: told.take, heard: heard}
	complaints := watcher{line: told.complain, heard: heard}
	fmt.Fprint(&output, `{"message_type":"status","bytes_do`)
	fmt.Fprint(&output, "ne\":5}\nno JSON\n"+strings.Repeat("x", longestLine*2)+"\n")
	assert.EqualValues(t, 5, done)
	fmt.Fprintln(&output, `{"message_type":"status","bytes_restored":7}`)
	assert.EqualValues(t, 7, done)
	fmt.Fprintln(&output, `{"message_type":"summary","snapshot_id":"abc","data_added_packed":9}`)
	assert.Equal(t, summary{Snapshot: "abc", Packed: 9}, told.summary)
	assert.True(t, told.done)

	fmt.Fprintln(&complaints, `Save(<data/1>) returned error, retrying after 1.5s: connection refused`)
	assert.Equal(t, "connection refused", waits)
	for i := range 9 {
		fmt.Fprintf(&complaints, `{"message_type":"error","error":{"message":"bad"},"item":"/%d"}`+"\n", i)
	}
	fmt.Fprintln(&complaints, `{"message_type":"exit_error","code":1,"message":"Fatal: the end\nmore"}`)
	assert.Equal(t, "Save(<data/1>) returned error, retrying after 1.5s: connection refused; /0: bad; /1: bad; Fatal: the end", told.said())
}
