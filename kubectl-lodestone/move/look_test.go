package move

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/access"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
)

var volumeMoves = v1alpha1.GroupVersion.WithResource("volumemoves").GroupResource()

func TestWhatMayPassIsAskedAgain(t *testing.T) {
	for name, row := range map[string]struct {
		err    error
		passes bool
	}{
		"no connection":        {syscall.ECONNREFUSED, true},
		"no answer in time":    {context.DeadlineExceeded, true},
		"too many requests":    {apierrors.NewTooManyRequests("later", 1), true},
		"a server in trouble":  {apierrors.NewInternalError(errors.New("no leader")), true},
		"a server that starts": {apierrors.NewServiceUnavailable("starting"), true},
		"a deleted move":       {apierrors.NewNotFound(volumeMoves, "data-x"), false},
		"a right taken away":   {apierrors.NewForbidden(volumeMoves, "data-x", nil), false},
		"a login that is over": {apierrors.NewUnauthorized("log in"), false},
	} {
		synctest.Test(t, func(t *testing.T) {
			began, times := time.Now(), 0
			var said bytes.Buffer
			move, err := look(t.Context(), newScreen(&said), func(context.Context) (*v1alpha1.VolumeMove, error) {
				times++
				if times < 4 {
					return nil, row.err
				}
				return moveIn(v1alpha1.MovePreCopy), nil
			})
			if !row.passes {
				assert.ErrorIs(t, err, row.err, name)
				assert.Equal(t, 1, times, name)
				return
			}
			require.NoError(t, err, name)
			assert.NotNil(t, move)
			assert.Equal(t, 3*pause, time.Since(began), name)
			assert.Contains(t, said.String(), "asking again for 2m0s: ", name)
			assert.Equal(t, 1, bytes.Count(said.Bytes(), []byte("\n")), "it is said once")

			began = time.Now()
			_, err = look(t.Context(), newScreen(&said), func(context.Context) (*v1alpha1.VolumeMove, error) { return nil, row.err })
			assert.ErrorIs(t, err, row.err, name)
			assert.Equal(t, patience, time.Since(began), name)
		})
	}
}

func TestWhoCannotFollowAMoveIsToldThatItGoesOn(t *testing.T) {
	home := &access.Cluster{Context: "home"}
	move := moveIn(v1alpha1.MovePreCopy)
	for name, row := range map[string]struct {
		err  error
		says string
	}{
		"no right":  {apierrors.NewForbidden(volumeMoves, "data-x", nil), "ask its administrator for that right"},
		"no login":  {apierrors.NewUnauthorized("log in"), "log in again"},
		"no answer": {syscall.ECONNREFUSED, "does not answer"},
	} {
		err := unseen(home, move, row.err)
		assert.ErrorContains(t, err, row.says, name)
		assert.ErrorContains(t, err, "; the move goes on: kubectl lodestone move status data-x -n shop shows it", name)
	}
	err := unseen(home, move, apierrors.NewNotFound(volumeMoves, "data-x"))
	assert.ErrorContains(t, err, "VolumeMove shop/data-x was deleted: by itself a move that is not committed then goes back")
	move.Spec.DryRun = true
	assert.NotContains(t, unseen(home, move, syscall.ECONNREFUSED).Error(), "the move goes on")
}

func TestAnAPIServerThatFailsOnceEndsNoStatefulSet(t *testing.T) {
	t.Parallel()
	broken := 0
	r, wrote := shop(t, &server{breaks: func(w http.ResponseWriter) bool {
		if broken++; broken > 1 {
			return false
		}
		http.Error(w, "no leader", http.StatusInternalServerError)
		return true
	}})
	require.NoError(t, r.replicas(t))
	out, said := wrote()
	assert.Contains(t, out, "data-db-2; ")
	assert.Contains(t, said, "the move cannot be seen for now")
}
