package moves

import (
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/provisioner/app"
	"github.com/lodestone-storage/lodestone/provisioner/moves/record"
)

// capped starts the provisioner anew with limits.
func capped(t *testing.T, total, perNamespace int) {
	t.Helper()
	restart(t, func(c *app.Config) {
		c.MaxMoves, c.MaxMovesPerNamespace = total, perNamespace
	})
}

// endless makes a move of a volume that is filled, and that no pod uses, stay in FinalSync until it is aborted.
func endless(m *v1alpha1.VolumeMove) { m.Spec.BandwidthLimit = ptr.To(resource.MustParse("32Ki")) }

// seen returns a move as it is now.
func seen(t *testing.T, made *v1alpha1.VolumeMove) *v1alpha1.VolumeMove {
	t.Helper()
	return must.Get(t, moves(t, made.Namespace), made.Name)
}

// waits waits until a move is told where it stands.
func waits(t *testing.T, made *v1alpha1.VolumeMove, position int, says string) {
	t.Helper()
	await.Until(t, "move "+made.Name+" is told where it stands", func() bool {
		now := seen(t, made)
		require.Empty(t, now.Status.Phase, "it has begun")
		return int(now.Status.QueuePosition) == position && now.Status.Message == says
	}, func() any { return seen(t, made).Status })
	assert.Empty(t, seen(t, made).Finalizers, "nothing is done for it")
}

// forgotten waits until nothing is stored of a move that is over, which stays so.
func forgotten(t *testing.T, made *v1alpha1.VolumeMove, phase v1alpha1.MovePhase) {
	t.Helper()
	await.Until(t, "the record of move "+made.Name+" is gone", func() bool {
		_, err := bed.Home.Client().CoreV1().Secrets(fabric.System).Get(t.Context(), record.SecretName(made.UID), metav1.GetOptions{})
		return apierrors.IsNotFound(err) && len(seen(t, made).Finalizers) == 0
	}, func() any { return seen(t, made) })
	assert.Equal(t, phase, seen(t, made).Status.Phase)
}

func TestMovesWaitForTheirTurn(t *testing.T) {
	testbed.NotInShort(t)
	many, one := space(t), space(t)
	t.Cleanup(func() { restart(t) })
	all := application(many, "first", "a")
	all.Spec.Volumes = fabric.NewPod(many, "first", "a", "b", "c", "d").Spec.Volumes
	begins(t, many, all, "a", "b", "c", "d")
	begins(t, one, application(one, "first", "e"), "e")
	for namespace, claims := range map[string][]string{many: {"a", "b"}, one: {"e"}} {
		for _, claim := range claims {
			fill(t, folder(t, namespace, claim))
		}
	}
	capped(t, 2, 1)
	a := move(t, many, "a", "west", endless)
	reaches(t, a, v1alpha1.MoveFinalSync)
	b := move(t, many, "b", "west", endless)
	waits(t, b, 1, "waiting for its turn, with no other one of its namespace before it: at most 1 move of a namespace is under way at once "+
		"(--max-moves-per-namespace)")
	c := move(t, many, "c", "west")
	waits(t, c, 2, "waiting for its turn, with 1 move of its namespace before it: at most 1 move of a namespace is under way at once "+
		"(--max-moves-per-namespace)")
	e := move(t, one, "e", "west", endless)
	reaches(t, e, v1alpha1.MoveFinalSync)

	dry := move(t, many, "d", "west", func(m *v1alpha1.VolumeMove) { m.Spec.DryRun = true })
	reaches(t, dry, v1alpha1.MoveChecked)
	forgotten(t, dry, v1alpha1.MoveChecked)

	// What is under way goes on above a lower limit, and the others still wait.
	capped(t, 1, 1)
	must.Delete(t, moves(t, many), c.Name)
	_, err := moves(t, many).Get(t.Context(), c.Name, metav1.GetOptions{})
	assert.True(t, apierrors.IsNotFound(err), "a waiting move is gone at once: %v", err)
	abort(t, a)
	reaches(t, a, v1alpha1.MoveAborted)
	forgotten(t, a, v1alpha1.MoveAborted)
	waits(t, b, 1, "waiting for its turn, with no other one before it: at most 1 move is under way at once (--max-moves)")
	assert.Equal(t, v1alpha1.MoveFinalSync, seen(t, e).Status.Phase)
	d := move(t, many, "d", "west", func(m *v1alpha1.VolumeMove) { m.Name = "d" })
	abort(t, d)
	assert.Equal(t, "the move was aborted before it began", reaches(t, d, v1alpha1.MoveAborted).Status.Message)
	forgotten(t, d, v1alpha1.MoveAborted)

	abort(t, e)
	began := reaches(t, b, v1alpha1.MoveFinalSync)
	assert.Zero(t, began.Status.QueuePosition)
	capped(t, 2, 2)
	abort(t, b)
	reaches(t, b, v1alpha1.MoveAborted)

	// A move that was done, too, is not begun anew without its record.
	c = move(t, many, "c", "west")
	reaches(t, c, v1alpha1.MoveDone)
	forgotten(t, c, v1alpha1.MoveDone)
	capped(t, 2, 2)
	must.Patch(t, moves(t, many), c.Name, types.MergePatchType, []byte(`{"spec":{"keepSourceFor":"1m"}}`))
	await.Until(t, "the change is seen", func() bool {
		now := seen(t, c)
		return now.Generation > c.Generation && now.Status.ObservedGeneration == now.Generation
	})
	forgotten(t, c, v1alpha1.MoveDone)
	for _, claim := range []string{"a", "b", "c", "d"} {
		found := await.Claim(t, bed.Home.Client(), many, claim)
		assert.Empty(t, found.Annotations["lodestone.dev/move"])
	}
}

// abort asks for the end of a move.
func abort(t *testing.T, made *v1alpha1.VolumeMove) {
	t.Helper()
	must.Patch(t, moves(t, made.Namespace), made.Name, types.MergePatchType, []byte(`{"spec":{"action":"Abort"}}`))
}
