package replicas

import (
	"context"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	"k8s.io/client-go/rest"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	remotev1alpha1 "github.com/lodestone-storage/lodestone/pkg/api/remote/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// startThird starts a third cluster.
func startThird(t *testing.T) *testbed.Cluster {
	t.Helper()
	started, err := testbed.Start(t.Context(), testbed.Config{Name: "third"})
	require.NoError(t, err)
	t.Cleanup(started[0].Stop)
	return started[0]
}

// third registers a third cluster at home, without storage and without an agent: all it does is to answer.
func third(t *testing.T) {
	t.Helper()
	cluster := startThird(t)
	must.Kubectl(t, cluster, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote-volumes"))
	kubeconfig, err := cluster.ServiceAccountKubeconfig(t.Context(), "lodestone-volumes", "lodestone-home")
	require.NoError(t, err)
	registerThird(t, kubeconfig, without)
}

// probingThird registers a third cluster whose agent probes a server in west's place, and returns what changes that server.
func probingThird(t *testing.T, server string) (change func(server string)) {
	t.Helper()
	_, kubeconfig, agents := agentInThird(t, func(home *remotev1alpha1.HomeCluster) {
		home.Spec.Probes = []remotev1alpha1.ClusterProbe{{Cluster: "west", Server: server}}
	})
	registerThird(t, kubeconfig, without)
	home, err := bed.HomeID(t.Context())
	require.NoError(t, err)
	return func(server string) {
		must.Patch(t, agents.HomeClusters(), home, types.MergePatchType,
			[]byte(`{"spec":{"probes":[{"cluster":"west","server":"`+server+`"}]}}`))
	}
}

// agentInThird starts a third cluster with an agent, which serves home as its HomeCluster says, and returns home's kubeconfig and a client
// with all rights.
func agentInThird(t *testing.T, tune func(*remotev1alpha1.HomeCluster)) (*testbed.Cluster, []byte, *clients.RemoteClient) {
	t.Helper()
	cluster := startThird(t)
	must.Kubectl(t, cluster, "", "apply", "-k", filepath.Join(fabric.Root(), "deploy", "remote"))
	must.Kubectl(t, cluster, "", "wait", "--for=condition=Established", "--all", "crd", "--timeout=30s")
	agents, err := clients.NewRemoteClient(cluster.AdminConfig())
	require.NoError(t, err)
	at := &fabric.Fabric{Home: bed.Home, West: cluster, Agents: agents}
	program, err := at.StartAgent(t.Context())
	require.NoError(t, err)
	t.Cleanup(func() { require.NoError(t, program.Stop()) })
	kubeconfig, err := at.Tenant(t.Context(), tune)
	require.NoError(t, err)
	return cluster, kubeconfig, agents
}

// without has no node stand for a cluster.
func without(spec *v1alpha1.RemoteClusterSpec) { spec.VirtualNode = v1alpha1.VirtualNodeDisabled }

// registerThird has home know the third cluster until the test ends.
func registerThird(t *testing.T, kubeconfig []byte, tune func(*v1alpha1.RemoteClusterSpec)) {
	t.Helper()
	require.NoError(t, bed.Register(t.Context(), "third", kubeconfig, tune))
	t.Cleanup(func() {
		must.Delete(t, bed.Remotes, "third")
		await.Until(t, "RemoteCluster third is gone", func() bool {
			_, err := bed.Remotes.Get(context.Background(), "third", metav1.GetOptions{})
			return apierrors.IsNotFound(err)
		})
		must.Delete(t, bed.Home.Client().CoreV1().Secrets(fabric.System), "third")
	})
	require.NoError(t, bed.AwaitReady(t.Context(), "third", metav1.ConditionTrue))
}

// saidOf waits until an event on a VolumeReplica says something.
func saidOf(t *testing.T, made *v1alpha1.VolumeReplica, reason, text string) {
	t.Helper()
	await.Until(t, "event "+reason+" says: "+text, func() bool {
		events := must.List(t, bed.Home.Client().CoreV1().Events(made.Namespace))
		for i := range events.Items {
			e := &events.Items[i]
			if e.InvolvedObject.UID == made.UID && e.Reason == reason && e.Type == corev1.EventTypeWarning && strings.Contains(e.Message, text) {
				return true
			}
		}
		return false
	}, func() any { return await.Events(t, bed.Home.Client(), made.Namespace) })
}

// failsOver waits until a claim of a namespace fails over by itself, and returns the move that does it.
func failsOver(t *testing.T, namespace string) (over *v1alpha1.VolumeMove) {
	t.Helper()
	await.Until(t, "the claim fails over", func() bool {
		moves := must.List(t, objects(t).In(namespace))
		if len(moves.Items) == 1 {
			over = &moves.Items[0]
		}
		return over != nil
	}, func() any { return await.Events(t, bed.Home.Client(), namespace) })
	return over
}

func TestAClaimFailsOverByItselfOnceAnotherClusterThanTheLostOneAnswers(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	made := replicate(t, namespace, keys.Home)

	// Whoever may make replicas may not have them fail over by themselves, and may change what else there is of one that does.
	editor(t, namespace)
	as := rest.CopyConfig(bed.Home.AdminConfig())
	as.Impersonate.UserName = "editor"
	user, err := clients.NewVolumeMoveClient(as)
	require.NoError(t, err)
	change := func(by *clients.VolumeMoveClient, patch string) error {
		_, err := by.Replicas(namespace).Patch(t.Context(), made.Name, types.MergePatchType, []byte(patch), metav1.PatchOptions{})
		return err
	}
	const refused = "only who may fence remoteclusters, as an administrator may, can have a claim fail over by itself"
	require.ErrorContains(t, change(user, `{"spec":{"automaticFailover":{"after":"10s"}}}`), refused)
	own := &v1alpha1.VolumeReplica{ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: "own"}, Spec: made.Spec}
	own.Spec.AutomaticFailover = &v1alpha1.AutomaticFailover{}
	_, err = user.Replicas(namespace).Create(t.Context(), own, metav1.CreateOptions{})
	require.ErrorContains(t, err, refused)
	require.NoError(t, change(objects(t), `{"spec":{"automaticFailover":{"after":"10s","maxLoss":"1h"}}}`))
	require.NoError(t, change(user, `{"spec":{"versions":{"keep":3}}}`))
	require.ErrorContains(t, change(user, `{"spec":{"automaticFailover":{"after":"20s"}}}`), refused)

	// Another one is for the other direction.
	other := replicate(t, namespace, "west", func(r *v1alpha1.VolumeReplica) { r.Name = "other" })
	says(t, other, "SameCluster", "is in cluster west, where its copy is, too")
	sealed(t, made, time.Time{})
	// And one is a second copy, which fails over by itself, too.
	second := replicate(t, namespace, keys.Home, func(r *v1alpha1.VolumeReplica) {
		r.Name, r.Spec.AutomaticFailover = "second", &v1alpha1.AutomaticFailover{
			After: &metav1.Duration{Duration: 10 * time.Second}, MaxLoss: &metav1.Duration{Duration: time.Hour}}
	})
	sealed(t, second, time.Time{})
	lost := folder(t, namespace)
	require.NoError(t, bed.West.PauseAPIServer())
	resume := sync.OnceValue(bed.West.ResumeAPIServer)
	t.Cleanup(func() { _ = resume() })
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionFalse))

	// Home may be the one that is cut off.
	saidOf(t, made, "NotFailedOver", "no other remote cluster answers either")
	moves := must.List(t, objects(t).In(namespace))
	require.Empty(t, moves.Items)

	// It is not: another cluster answers.
	third(t)
	over := failsOver(t, namespace)
	taken, left := made, second
	if over.Spec.Failover.Replica == second.Name {
		taken, left = second, made
	}
	saidOf(t, taken, "FailsOver", `claim "data" fails over to version `+over.Spec.Failover.Version+" in cluster home")
	newest := must.Get(t, objects(t).Replicas(namespace), left.Name).Status.Standbys[0].Sealed
	assert.False(t, newest.After(must.Get(t, objects(t).Replicas(namespace), taken.Name).Status.Standbys[0].Sealed.Time),
		"the newest version is taken")
	over = inPhase(t, over, v1alpha1.MoveRetain)
	assert.Equal(t, v1alpha1.FenceDeclared, over.Status.Failover.Fence)
	at := folder(t, namespace)
	require.NotEqual(t, lost, at)
	beyond(t, namespace, counted(t, at)+5)
	moves = must.List(t, objects(t).In(namespace))
	require.Len(t, moves.Items, 1, "of two copies one is failed over to")

	require.NoError(t, resume())
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	await.Until(t, "the pod in west is ended", func() bool {
		pods, err := bed.West.Client().CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		return err == nil && len(pods.Items) == 0
	})
	sealed(t, other, time.Time{})
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
	removes(t, second)
	removes(t, other)
	beyond(t, namespace, counted(t, at)+5)
}

// TestNothingFailsOverByItselfWhileAnotherClusterReachesTheOneThatHomeDoesNot: the agent of a third cluster probes it, as its owner says.
func TestNothingFailsOverByItselfWhileAnotherClusterReachesTheOneThatHomeDoesNot(t *testing.T) {
	testbed.NotInShort(t)
	namespace := space(t)
	counts(t, namespace, virtual, "west")
	made := replicate(t, namespace, keys.Home)
	sealed(t, made, time.Time{})
	// What answers in the place of west's API server is home's: the network between home and west alone is cut.
	change := probingThird(t, bed.Home.AdminConfig().Host)
	must.Patch(t, objects(t).Replicas(namespace), made.Name, types.MergePatchType,
		[]byte(`{"spec":{"automaticFailover":{"after":"10s","maxLoss":"1h"}}}`))
	require.NoError(t, bed.West.PauseAPIServer())
	resume := sync.OnceValue(bed.West.ResumeAPIServer)
	t.Cleanup(func() { _ = resume() })
	saidOf(t, made, "NotFailedOver", "it answers cluster third, whose owner has it probed")
	moves := must.List(t, objects(t).In(namespace))
	require.Empty(t, moves.Items)

	// An API server that takes connections and answers nothing does not answer there either.
	change(bed.West.AdminConfig().Host)
	over := failsOver(t, namespace)
	over = inPhase(t, over, v1alpha1.MoveRetain)
	require.NoError(t, resume())
	require.NoError(t, bed.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
	act(t, over, v1alpha1.ActionFinalize)
	inPhase(t, over, v1alpha1.MoveDone)
	removes(t, made)
}
