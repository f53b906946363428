package moves

import (
	"slices"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/volumemoves"
)

func TestAMoveWhoseTargetIsGoneIsGivenUp(t *testing.T) {
	namespace := space(t)
	deploys(t, namespace, "data", heavy)
	from := folder(t, namespace, "data")
	made := move(t, namespace, "data", "west", slowly)
	reaches(t, made, v1alpha1.MovePreCopy)
	code, _, said := plugin(t, "move", "give-up", made.Name, "-n", namespace)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, `cluster "west" answers`)

	require.NoError(t, bed.West.PauseAPIServer())
	defer func() { require.NoError(t, bed.West.ResumeAPIServer()) }()
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	act(t, made, v1alpha1.ActionAbort)
	says(t, made, "kubectl lodestone move give-up "+made.Name)
	counts(t, from, counted(t, from)+10)
	claim := await.Claim(t, bed.Home.Client(), namespace, "data")
	assert.False(t, slices.Contains(claim.Finalizers, keys.MoveFinalizer), "it is free")

	// It can be moved elsewhere before that end is cleaned up.
	next := move(t, namespace, "data", keys.Home, toNode(elsewhere(t, namespace)))
	done := reaches(t, next, v1alpha1.MoveDone, v1alpha1.MoveFailed, v1alpha1.MoveAborted)
	require.Equal(t, v1alpha1.MoveDone, done.Status.Phase, done.Status.Message)
	at := folder(t, namespace, "data")
	require.NotEqual(t, from, at)
	counts(t, at, counted(t, at)+10)

	// Not everybody who may move volumes may say that a cluster is gone.
	client, err := volumemoves.NewClient(tenant(t, namespace))
	require.NoError(t, err)
	_, err = client.In(namespace).Patch(t.Context(), made.Name, types.MergePatchType, []byte(`{"spec":{"action":"GiveUp"}}`), metav1.PatchOptions{})
	assert.True(t, apierrors.IsForbidden(err), "%v", err)
	code, _, said = plugin(t, "move", "give-up", made.Name, "-n", namespace)
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "short outage")
	code, _, said = plugin(t, "move", "give-up", made.Name, "-n", namespace, "--away", "0s")
	assert.Equal(t, 3, code)
	assert.Contains(t, said, "nothing was changed")
	code, _, said = plugin(t, "move", "give-up", made.Name, "-n", namespace, "--away", "0s", "--yes")
	require.Zero(t, code, said)
	over := reaches(t, made, v1alpha1.MoveAborted, v1alpha1.MoveDone, v1alpha1.MoveFailed)
	require.Equal(t, v1alpha1.MoveAborted, over.Status.Phase, over.Status.Message)
	assert.Contains(t, over.Status.Message, "cluster west was given up")
	assert.Contains(t, over.Status.Message, "real claim "+namespace+"/data")
	assert.Contains(t, await.Event(t, bed.Home.Client(), namespace, made.Name, "GivenUp"), "remove by hand")
	counts(t, at, counted(t, at)+10)
}
