package replicas

import (
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// TestAClaimFailsOverByItselfOnceWhereverTheProvisionerDies loses west once: what the provisioner does then it does once for a version,
// and the cluster has to be silent anew whenever it has started.
func TestAClaimFailsOverByItselfOnceWhereverTheProvisionerDies(t *testing.T) {
	g := dying(t)
	third(t)
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	made := replicate(t, namespace, keys.Home, func(r *v1alpha1.VolumeReplica) {
		r.Spec.RPO.Duration = time.Hour
		r.Spec.AutomaticFailover = &v1alpha1.AutomaticFailover{After: &metav1.Duration{Duration: 10 * time.Second}}
	})
	version := sealed(t, made, time.Time{}).Status.Standbys[0].Versions[0].Name
	has := sealedInSnapshots(t, made, version)
	one := life{namespace: namespace, primary: keys.Home, standby: "west"}
	uids, lost := one.claims(t, made)

	require.NoError(t, bed.West.PauseAPIServer())
	resume := sync.OnceValue(bed.West.ResumeAPIServer)
	t.Cleanup(func() { _ = resume() })
	g.open()
	over := inPhase(t, failsOver(t, namespace), v1alpha1.MoveRetain)
	assert.Equal(t, v1alpha1.FenceDeclared, over.Status.Failover.Fence)
	assert.Equal(t, version, over.Status.Failover.Version)
	same, at := one.claims(t, made)
	assert.Equal(t, uids, same)
	require.NotEqual(t, lost, at)
	beyond(t, namespace, has+5)
	require.NoError(t, resume())
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "the pod in west is ended", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
	assert.GreaterOrEqual(t, counted(t, lost[0]), has, "what was in west is kept")
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
	moves := must.List(t, objects(t).In(namespace))
	assert.Len(t, moves.Items, 1, "it failed over once")
	must.Delete(t, objects(t).In(namespace), over.Name)
	await.Until(t, "the claim has its volume, and nothing else is left", func() bool { return len(one.beside(t, made, over)) == 0 },
		func() any { return one.beside(t, made, over) })
	beyond(t, namespace, counted(t, at[0]))
	require.Positive(t, g.deaths())
}
