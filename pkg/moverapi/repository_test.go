package moverapi

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
)

func TestASecretOfAnObjectStoreIsRead(t *testing.T) {
	keys, err := IssueKeys("a", time.Now(), time.Hour)
	require.NoError(t, err)
	authority := keys[Sender][AuthorityFile]
	for name, row := range map[string]struct {
		data map[string]string
		want string
	}{
		"a REST server with a user": {data: map[string]string{"url": "rest:https://store:8000/moves/", "RESTIC_REST_USERNAME": "u",
			"RESTIC_REST_PASSWORD": "secret\n", "ca.crt": string(authority)}},
		"a bucket": {data: map[string]string{"url": "s3:https://s3.example.com/bucket", "AWS_ACCESS_KEY_ID": "u",
			"AWS_SECRET_ACCESS_KEY": "secret", "AWS_DEFAULT_REGION": "eu"}},
		"no URL":                            {map[string]string{}, "its key url must be"},
		"another kind of store":             {map[string]string{"url": "sftp:user@host:/path"}, "its key url must be"},
		"a path of the mover":               {map[string]string{"url": "/volume"}, "its key url must be"},
		"credentials that everybody reads":  {map[string]string{"url": "rest:http://store"}, "others could read its credentials"},
		"a password in the URL":             {map[string]string{"url": "rest:https://u:secret@store/"}, "in their own keys"},
		"a query":                           {map[string]string{"url": "rest:https://store/?a=secret"}, "its key url must be"},
		"a path that climbs":                {map[string]string{"url": "rest:https://store/a/../b"}, "its key url must be"},
		"a line break in the URL":           {map[string]string{"url": "rest:https://store/a\nb"}, "its key url must be"},
		"no host":                           {map[string]string{"url": "rest:https:///a"}, "its key url must be"},
		"no bucket":                         {map[string]string{"url": "s3:https://s3.example.com/"}, "names no bucket"},
		"a variable that is not credential": {map[string]string{"url": "rest:https://store", "LD_PRELOAD": "secret"}, `the key "LD_PRELOAD"`},
		"a variable of restic's own": {map[string]string{"url": "rest:https://store", "RESTIC_PASSWORD_COMMAND": "secret"},
			"RESTIC_PASSWORD_COMMAND"},
		"credentials of two lines":  {map[string]string{"url": "rest:https://store", "AWS_ACCESS_KEY_ID": "secret\nb"}, "AWS_ACCESS_KEY_ID"},
		"an authority that is none": {map[string]string{"url": "rest:https://store", "ca.crt": "secret"}, "no certificate"},
		"an authority that is too large": {map[string]string{"url": "rest:https://store", "ca.crt": strings.Repeat("x", 65<<10)},
			"longer than 16 KiB"},
	} {
		t.Run(name, func(t *testing.T) {
			data := map[string][]byte{}
			for key, value := range row.data {
				data[key] = []byte(value)
			}
			read, err := ParseRepository(data)
			if row.want != "" {
				require.ErrorContains(t, err, row.want)
				assert.NotContains(t, err.Error(), "secret", "values are nobody's business")
				return
			}
			require.NoError(t, err)
			assert.Equal(t, strings.TrimRight(row.data["url"], "/"), read.URL)
			for key, value := range row.data {
				if key != "url" && key != "ca.crt" {
					assert.Equal(t, strings.TrimSpace(value), read.Credentials[key])
				}
			}
		})
	}
}

func TestAMoverReadsWhatItIsGiven(t *testing.T) {
	folder := t.TempDir()
	none, err := ReadTicket(folder)
	require.NoError(t, err)
	assert.Nil(t, none)

	shared := Repository{URL: "rest:https://store/moves", Credentials: map[string]string{"RESTIC_REST_USERNAME": "u"},
		Authority: []byte("pem")}
	given := shared.For("uid-0", "word")
	files, err := given.Files()
	require.NoError(t, err)
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	read, err := ReadTicket(folder)
	require.NoError(t, err)
	assert.Equal(t, &given, read)
	assert.Equal(t, "rest:https://store/moves/uid-0", read.URL)
	assert.Equal(t, "store:443", read.Host())
	assert.Equal(t, "rest:https://store/moves", shared.URL)
	assert.True(t, read.Plain())

	for _, wrong := range []string{
		`{"url":"/volume","password":"x"}`, `{"claim":"moves","password":"x"}`, `{"claim":"moves","folder":"../volume","password":"x"}`,
		`{"claim":"moves","folder":"uid-0"}`, `{"claim":"moves","folder":"uid-0","url":"rest:https://store/","password":"x"}`,
	} {
		require.NoError(t, os.WriteFile(filepath.Join(folder, TicketFile), []byte(wrong), 0o600))
		_, err = ReadTicket(folder)
		require.Error(t, err, wrong)
	}
}

func TestAMoverIsToldOfAClaim(t *testing.T) {
	shared := Repository{Claim: "west-moves"}
	given := shared.For("uid-0", "word")
	files, err := given.Files()
	require.NoError(t, err)
	folder := t.TempDir()
	for name, content := range files {
		require.NoError(t, os.WriteFile(filepath.Join(folder, name), content, 0o600))
	}
	read, err := ReadTicket(folder)
	require.NoError(t, err)
	assert.Equal(t, &given, read)
	assert.Equal(t, "uid-0", read.Folder)
	assert.Equal(t, "claim west-moves", read.Noun())
	assert.False(t, read.Plain())
}
