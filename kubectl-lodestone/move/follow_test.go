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
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"k8s.io/client-go/kubernetes/fake"

	"github.com/lodestone-storage/lodestone/kubectl-lodestone/cli"
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
			move, err := poll(t.Context(), newScreen(&said), func(context.Context) (*v1alpha1.VolumeMove, error) {
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
			assert.Equal(t, 3*retryInterval, time.Since(began), name)
			assert.Contains(t, said.String(), "asking again for 2m: ", name)
			assert.Equal(t, 1, bytes.Count(said.Bytes(), []byte("\n")), "it is said once")

			began = time.Now()
			_, err = poll(t.Context(), newScreen(&said), func(context.Context) (*v1alpha1.VolumeMove, error) { return nil, row.err })
			assert.ErrorIs(t, err, row.err, name)
			assert.Equal(t, maxUnreadable, time.Since(began), name)
		})
	}
}

func TestWhoCannotFollowAMoveIsToldThatItGoesOn(t *testing.T) {
	alive := &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: "shop"}}
	home := &cli.Cluster{Context: "home", Client: fake.NewClientset(alive)}
	move := moveIn(v1alpha1.MovePreCopy)
	for name, row := range map[string]struct {
		err  error
		says string
	}{
		"no right":  {apierrors.NewForbidden(volumeMoves, "data-x", nil), "ask its administrator for that right"},
		"no login":  {apierrors.NewUnauthorized("log in"), "log in again"},
		"no answer": {syscall.ECONNREFUSED, "does not answer"},
	} {
		err := followError(t.Context(), home, move, row.err)
		assert.ErrorContains(t, err, row.says, name)
		assert.ErrorContains(t, err, "; the move goes on: kubectl lodestone move status data-x -n shop shows it", name)
	}
	err := followError(t.Context(), home, move, apierrors.NewNotFound(volumeMoves, "data-x"))
	assert.ErrorContains(t, err, "VolumeMove shop/data-x was deleted: if it was not committed, its claims go back")
	assert.ErrorContains(t, err, "they stay at the target and the copy at the source is removed; kubectl get events -n shop")
	over := move.DeepCopy()
	over.Spec.Failover = &v1alpha1.MoveFailover{}
	err = followError(t.Context(), home, over, apierrors.NewNotFound(volumeMoves, "data-x"))
	assert.ErrorContains(t, err, "they stay at the target; kubectl get events -n shop", "the volume that they had is kept")
	for name, gone := range map[string]*cli.Cluster{
		"its namespace is being deleted": {Context: "home", Client: fake.NewClientset(dying("shop"))},
		"its namespace is gone":          {Context: "home", Client: fake.NewClientset()},
	} {
		err = followError(t.Context(), gone, move, apierrors.NewNotFound(volumeMoves, "data-x"))
		assert.ErrorContains(t, err, "the move of data ends, because namespace shop was deleted, and its claims with it", name)
		assert.NotContains(t, err.Error(), "kubectl", "nothing is offered in a namespace that is going away")
	}
	move.Spec.DryRun = true
	assert.NotContains(t, followError(t.Context(), home, move, syscall.ECONNREFUSED).Error(), "the move goes on")
}

func dying(name string) *corev1.Namespace {
	now := metav1.Now()
	return &corev1.Namespace{ObjectMeta: metav1.ObjectMeta{Name: name, DeletionTimestamp: &now, Finalizers: []string{"kubernetes"}}}
}

func TestNothingIsOfferedInANamespaceThatIsBeingDeleted(t *testing.T) {
	t.Parallel()
	now := metav1.Now()
	// The answers of the server are those of a provisioner that goes back, and of one that has gone back.
	goesBack := func(phase v1alpha1.MovePhase) func(*v1alpha1.VolumeMove) {
		return func(move *v1alpha1.VolumeMove) {
			move.DeletionTimestamp, move.Status.Phase, move.Status.Message = &now, phase, "the VolumeMove was deleted"
		}
	}
	s := &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-0": goesBack(v1alpha1.MoveAborted),
		"data-db-2": goesBack(v1alpha1.MoveRollBack)}}
	r, wrote := shop(t, s)
	_, err := r.home.Client.CoreV1().Namespaces().Update(t.Context(), dying("shop"), metav1.UpdateOptions{})
	require.NoError(t, err)
	for _, claim := range []string{"data-db-0", "data-db-2"} {
		err = r.run(t.Context(), [][]string{{claim}})
		require.EqualError(t, err, "the move of "+claim+" ends, because namespace shop was deleted, and its claims with it: what the move has "+
			"made elsewhere is removed by itself")
	}
	_, said := wrote()
	assert.NotContains(t, said, "was deleted", "what the error says is not said before it")

	leaving := moveIn(v1alpha1.MoveRollBack)
	leaving.DeletionTimestamp = &now
	assert.Equal(t, "the move was deleted, and ends by itself", goesOnText(leaving)+abortText(leaving))
	assert.Contains(t, whyForbidden(leaving, v1alpha1.ActionAbort), "is being deleted, and ends by itself")
	assert.Empty(t, whyForbidden(leaving, v1alpha1.ActionGiveUp), "a cluster that is gone for ever holds it all the same")
	assert.ErrorContains(t, requireLiving(t.Context(), r.home, leaving), "nothing is moved in it any more")

	claim, err := r.home.Client.CoreV1().PersistentVolumeClaims("shop").Get(t.Context(), "data-db-1", metav1.GetOptions{})
	require.NoError(t, err)
	claim.DeletionTimestamp = &now
	_, err = r.home.Client.CoreV1().PersistentVolumeClaims("shop").Update(t.Context(), claim, metav1.UpdateOptions{})
	require.NoError(t, err)
	require.EqualError(t, r.run(t.Context(), [][]string{{"data-db-1"}}), "claim shop/data-db-1 is being deleted with namespace shop, so it "+
		"is not moved")
}

func TestAMoveThatWasRefusedIsNotLeft(t *testing.T) {
	t.Parallel()
	s := &server{fate: map[string]func(*v1alpha1.VolumeMove){"data-db-0": refusedFor("Refused", "the class says no"), "data-db-1": fails}}
	r, wrote := shop(t, s)
	require.EqualError(t, r.run(t.Context(), [][]string{{"data-db-0"}}), "data-db-0 is not moved: the class says no")
	assert.Empty(t, s.moves, "it would be in the way of what is tried next")
	_, said := wrote()
	assert.NotContains(t, said, "the class says no", "the error says it once")
	require.EqualError(t, r.run(t.Context(), [][]string{{"data-db-1"}}), "data-db-1 was not moved: the copies differ")
	assert.Len(t, s.moves, 1, "one that was begun stays for those who want to know what became of it")
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

func TestHowDataTravelsIsShown(t *testing.T) {
	direct := v1alpha1.MovedClaim{Name: "data", Bytes: 1, BytesTotal: 2, Transport: v1alpha1.TransportDirect}
	spliced := v1alpha1.MovedClaim{Name: "log", Bytes: 1, BytesTotal: 2, Transport: v1alpha1.TransportSpliced,
		Legs: &v1alpha1.MoveLegs{Source: v1alpha1.LegAddress, Target: v1alpha1.LegAPIServer}, TransportMessage: "the networks are apart"}
	for name, row := range map[string]struct {
		claims     []v1alpha1.MovedClaim
		line, said string
	}{
		"not yet": {claims: []v1alpha1.MovedClaim{{Name: "data", Bytes: 1, BytesTotal: 2}}},
		"directly": {claims: []v1alpha1.MovedClaim{direct}, line: "  direct",
			said: "the data of claim data travels directly from mover to mover\n"},
		"both ways": {claims: []v1alpha1.MovedClaim{direct, spliced}, line: "  through the provisioner",
			said: "the data of claim data travels directly from mover to mover\nthe data of claim log travels through the provisioner, which " +
				"reaches the mover at the source at its address and the one at the target through the API server: the networks are apart\n"},
	} {
		t.Run(name, func(t *testing.T) {
			move := moveIn(v1alpha1.MoveFinalSync)
			move.Status.Claims = row.claims
			assert.Equal(t, "FinalSync       "+progressBar(sumOf(move.Status))+row.line, progressLine(move, time.Time{}))
			var out bytes.Buffer
			require.NoError(t, writeRoutes(&out, move))
			assert.Equal(t, row.said, out.String())
		})
	}
}
