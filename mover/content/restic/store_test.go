package restic

import (
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"

	"github.com/lodestone-storage/lodestone/pkg/moverapi"
)

func store() *Store {
	shared := moverapi.Repository{URL: "s3:https://store/bucket", Credentials: map[string]string{"AWS_ACCESS_KEY_ID": "id"}}
	return &Store{Ticket: shared.For("move-0", "word"), Temporary: "/scratch/restic", Authority: "/keys/ca"}
}

func TestNothingOfTheOtherEndIsAnArgumentButASnapshot(t *testing.T) {
	s := store()
	fetched := s.arguments(call{operation: restore, volume: "/volume", snapshot: strings.Repeat("a", 64), limit: 3 << 20})
	assert.Equal(t, []string{"--target=/volume", "--", strings.Repeat("a", 64)}, fetched[len(fetched)-3:])
	assert.Contains(t, fetched, "--limit-download=3072")
	assert.Contains(t, fetched, "--cacert=/keys/ca")
	assert.Contains(t, s.arguments(call{operation: backup, limit: 1}), "--limit-upload=1", "0 would be no limit")
	for _, argument := range s.arguments(call{operation: backup}) {
		assert.NotContains(t, argument, "--limit")
	}
	for _, name := range []string{"latest", "--target=/", "abcd", strings.Repeat("a", 64) + ":/", ""} {
		assert.ErrorContains(t, s.Fetch(t.Context(), "/volume", Saved{Snapshot: name}, 0, Output{}), "is no snapshot", name)
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
