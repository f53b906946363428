package history

import (
	"bytes"
	"context"
	"errors"
	"net/http"
	"os/exec"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	coordinationv1 "k8s.io/api/coordination/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/util/retry"

	"github.com/lodestone-storage/lodestone/e2e/await"
	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/must"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/homeepoch"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	provisioner "github.com/lodestone-storage/lodestone/provisioner/app"
	virtualnode "github.com/lodestone-storage/lodestone/virtualnode/app"
)

// TestAClonedHomeChangesNothing runs a copy of home beside home, both with all programs, and has a user
// of the copy delete a namespace whose pods and data are in west.
func TestAClonedHomeChangesNothing(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	production := fabricWithAgents(t)
	startPrograms(t, production)
	startExtender(t, production)
	register(t, production)
	namespace := openNamespace(t, production, "shop")
	pod := runInWest(t, production, namespace, "app")
	backup, err := production.Home.Backup(t.Context())
	require.NoError(t, err)
	awaitInForce(t, production)
	later := runInWest(t, production, namespace, "later")

	clone := startClone(t, production, backup)
	startPrograms(t, clone)
	state := awaitDoubt(t, clone, homeepoch.RemoteAhead)
	assert.Contains(t, state.Message, "kubectl lodestone confirm west")
	require.NoError(t, clone.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionFalse))
	copied := clone.Home.Client().CoreV1()
	must.Delete(t, copied.Pods(namespace), "app")
	must.Delete(t, copied.PersistentVolumeClaims(namespace), "app")
	must.Delete(t, copied.Namespaces(), namespace)

	await.Always(t, "production keeps its pods and data, and goes on", func() bool {
		return intact(t, production, namespace, "app", pod) && intact(t, production, namespace, "later", later)
	})
	runInWest(t, production, namespace, "next")
	assert.True(t, inForce(t, production))

	// Nor does it take over while production works, whatever its administrator says.
	code, _, said := lodestone(t, clone, "confirm", "west", "--yes")
	assert.Equal(t, 3, code, said)
	assert.Contains(t, said, "stop that copy")
	assert.True(t, intact(t, production, namespace, "app", pod))
	assert.True(t, inForce(t, production))
	// Its peering can be ended there, without harm to production.
	code, _, said = lodestone(t, clone, "unpeer", "west", "--remote-context", "west")
	assert.Equal(t, 3, code, said)
}

// TestAHomeThatIsRestoredFromABackupWaitsForItsAdministrator has home go back to before a claim was made.
func TestAHomeThatIsRestoredFromABackupWaitsForItsAdministrator(t *testing.T) {
	testbed.Require(t)
	restored := fabricWithAgents(t)
	programs := append(startPrograms(t, restored), startExtender(t, restored))
	register(t, restored)
	namespace := openNamespace(t, restored, "shop")
	kept := runInWest(t, restored, namespace, "kept")
	backup, err := restored.Home.Backup(t.Context())
	require.NoError(t, err)
	awaitInForce(t, restored)
	later := runInWest(t, restored, namespace, "later")

	// Programs that go on are told by no watch that home went back.
	require.NoError(t, restored.Home.Restore(t.Context(), backup))
	await.Until(t, "the provisioner records that home is in doubt", func() bool {
		secret := must.Get(t, restored.Home.Client().CoreV1().Secrets(fabric.System), homeepoch.SecretName("west"))
		record, err := homeepoch.ParseRecord(secret.Data[homeepoch.SecretKey])
		require.NoError(t, err)
		return record.Doubt != nil
	})
	awaitSilence(t, restored)
	for _, program := range programs {
		require.NoError(t, program.Stop())
	}
	startPrograms(t, restored)
	startExtender(t, restored)
	awaitDoubt(t, restored, homeepoch.RemoteAhead)
	assert.Nil(t, await.Claim(t, restored.Home.Client(), namespace, "later"))
	must.Delete(t, restored.Home.Client().CoreV1().Pods(namespace), "kept")
	await.Always(t, "nothing is deleted in west", func() bool {
		return intact(t, restored, namespace, "kept", kept) && intact(t, restored, namespace, "later", later)
	})

	code, out, said := lodestone(t, restored, "confirm", "west", "--yes")
	require.Equal(t, 0, code, said)
	assert.Contains(t, out, "west confirmed")
	assert.Contains(t, said, "In doubt since")
	awaitInForce(t, restored)
	require.NoError(t, restored.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
	assert.EqualValues(t, 2, markOf(t, restored).Epoch)
	await.Until(t, "what its user deleted ends in west", func() bool {
		return await.Pod(t, restored.West.Client(), namespace, "kept") == nil
	})
	runInWest(t, restored, namespace, "next")
	shadow := await.Claim(t, restored.West.Client(), namespace, "later")
	require.NotNil(t, shadow)
	assert.Nil(t, shadow.DeletionTimestamp, "data that home does not know of stays")
	code, _, said = lodestone(t, restored, "confirm", "west", "--yes")
	assert.Equal(t, 3, code, said)
}

// TestAMarkThatIsNotHomesStopsIt has somebody take the mark of home away, and somebody else keep it.
func TestAMarkThatIsNotHomesStopsIt(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	whole := t // programs go on from one row to the next
	home := fabricWithAgents(t)
	programs := startPrograms(t, home)
	startExtender(t, home)
	register(t, home)
	namespace := openNamespace(t, home, "shop")
	for _, row := range []struct {
		reason string
		change func(*homeepoch.Mark)
	}{
		{homeepoch.MarkMissing, func(mark *homeepoch.Mark) { *mark = homeepoch.Mark{} }},
		{homeepoch.TwoHolders, func(mark *homeepoch.Mark) { mark.Nonce, mark.Released = "of-another", false }},
	} {
		t.Run(row.reason, func(t *testing.T) {
			name := strings.ToLower(row.reason)
			there := runInWest(t, home, namespace, name)
			for _, program := range programs {
				require.NoError(t, program.Stop())
			}
			mark := markOf(t, home)
			row.change(&mark)
			setMark(t, home, mark)
			programs = startPrograms(whole, home)
			awaitDoubt(t, home, row.reason)
			must.Delete(t, home.Home.Client().CoreV1().Pods(namespace), name)
			await.Always(t, "nothing is deleted in west", func() bool { return intact(t, home, namespace, name, there) })
			assert.Equal(t, mark, markOf(t, home), "nothing is written there")

			code, _, said := lodestone(t, home, "confirm", "west", "--yes")
			require.Equal(t, 0, code, said)
			awaitInForce(t, home)
			await.Until(t, "what its user deleted ends in west", func() bool {
				return await.Pod(t, home.West.Client(), namespace, name) == nil
			})
		})
	}
}

// TestWhoPeersAgainBeginsAnew ends a peering and peers again, and runs new programs on what older ones left.
func TestWhoPeersAgainBeginsAnew(t *testing.T) {
	testbed.NotInShort(t)
	testbed.Require(t)
	again := fabricWithAgents(t)
	programs := startPrograms(t, again)
	startExtender(t, again)
	peer := func() {
		t.Helper()
		code, _, said := lodestone(t, again, "peer", "--remote-context", "west", "--namespaces", "*")
		require.Equal(t, 0, code, said)
		awaitInForce(t, again)
	}
	peer()
	first := markOf(t, again)
	assert.EqualValues(t, 1, first.Epoch)
	code, _, said := lodestone(t, again, "unpeer", "west", "--remote-context", "west")
	require.Equal(t, 0, code, said)
	peer()
	assert.EqualValues(t, 1, markOf(t, again).Epoch)

	// The owner of west lets home keep its rights, and home peers again.
	code, _, said = lodestone(t, again, "unpeer", "west")
	require.Equal(t, 0, code, said)
	peer()
	namespace := openNamespace(t, again, "shop")
	runInWest(t, again, namespace, "app")

	// A restart, and a leader that is cut off without a chance to say so.
	require.NoError(t, programs[0].Stop())
	assert.True(t, markOf(t, again).Released)
	ctx, end := context.WithCancel(t.Context())
	defer end()
	renewing := &endAtRenewal{end: end}
	restarted, err := again.StartProvisioner(ctx, unelected, renewing.wrap)
	require.NoError(t, err)
	await.Until(t, "the next leader renews the mark", func() bool { return !markOf(t, again).Released })
	runInWest(t, again, namespace, "restarted")

	// A program that is told to end in the middle of a renewal finishes that first.
	renewing.armed.Store(true)
	require.NoError(t, restarted.Wait())
	assert.True(t, markOf(t, again).Released)

	// An installation of an earlier version has neither record nor mark.
	secrets := again.Home.Client().CoreV1().Secrets(fabric.System)
	must.Delete(t, secrets, homeepoch.SecretName("west"))
	setMark(t, again, homeepoch.Mark{})
	_, err = again.StartProvisioner(t.Context(), unelected)
	require.NoError(t, err)
	await.Until(t, "the mark is there", func() bool { return !markOf(t, again).None() })
	runInWest(t, again, namespace, "upgraded")
	assert.EqualValues(t, 1, markOf(t, again).Epoch)
}

// endAtRenewal ends a provisioner, once it is armed, when that has recorded its next mark and not written it yet.
type endAtRenewal struct {
	armed atomic.Bool
	end   context.CancelFunc
}

func (e *endAtRenewal) wrap(config *provisioner.Config) {
	config.Home.Wrap(func(next http.RoundTripper) http.RoundTripper { return &endingTransport{endAtRenewal: e, next: next} })
}

type endingTransport struct {
	*endAtRenewal
	next http.RoundTripper
}

// RoundTrip implements http.RoundTripper.
func (e *endingTransport) RoundTrip(request *http.Request) (*http.Response, error) {
	response, err := e.next.RoundTrip(request)
	if request.Method == http.MethodPut && strings.HasSuffix(request.URL.Path, "/secrets/"+homeepoch.SecretName("west")) && e.armed.Load() {
		e.end()
	}
	return response, err
}

// fabricWithAgents starts clusters of their own, with the remote agent and the virtual node program installed.
func fabricWithAgents(t *testing.T) *fabric.Fabric {
	t.Helper()
	f, err := fabric.Start(t.Context(), fabric.Options{ControllerManagerQPS: 500, Agent: true, VirtualNode: true})
	require.NoError(t, err)
	t.Cleanup(f.Stop)
	_, err = f.StartAgent(t.Context())
	require.NoError(t, err)
	return f
}

func startExtender(t *testing.T, f *fabric.Fabric) *fabric.Program {
	t.Helper()
	extender, err := f.StartExtender(t.Context())
	require.NoError(t, err)
	return extender
}

// register peers home with west, and waits until it acts there.
func register(t *testing.T, f *fabric.Fabric) {
	t.Helper()
	require.NoError(t, f.Admit(t.Context(), nil))
	awaitInForce(t, f)
	require.NoError(t, f.AwaitNode(t.Context(), fabric.WestNode, corev1.ConditionTrue))
}

// startPrograms starts the provisioner and the virtual node program.
func startPrograms(t *testing.T, f *fabric.Fabric) []*fabric.Program {
	t.Helper()
	claims, err := f.StartProvisioner(t.Context(), unelected)
	require.NoError(t, err)
	nodes, err := f.StartVirtualNode(t.Context(), unelectedNode)
	require.NoError(t, err)
	return []*fabric.Program{claims, nodes}
}

// startClone starts a home cluster with what a backup of another has. It knows the same west.
func startClone(t *testing.T, of *fabric.Fabric, backup string) *fabric.Fabric {
	t.Helper()
	clusters, err := testbed.Start(t.Context(), testbed.Config{Name: "clone"})
	require.NoError(t, err)
	t.Cleanup(clusters[0].Stop)
	require.NoError(t, clusters[0].Restore(t.Context(), backup))
	clone := &fabric.Fabric{Home: clusters[0], West: of.West, Agents: of.Agents}
	clone.Remotes, err = clients.NewRemoteClusters(clone.Home.AdminConfig())
	require.NoError(t, err)
	return clone
}

func openNamespace(t *testing.T, f *fabric.Fabric, name string) string {
	t.Helper()
	require.NoError(t, f.Home.MakeNamespace(t.Context(), name))
	must.Kubectl(t, f.Home, "", "label", "namespace", name, keys.Offload+"="+keys.OffloadEnabled)
	return name
}

// runInWest runs a pod with a claim in west, and returns the pod there.
func runInWest(t *testing.T, f *fabric.Fabric, namespace, name string) *corev1.Pod {
	t.Helper()
	home := f.Home.Client().CoreV1()
	claim := fabric.NewClaim(namespace, name, fabric.Class)
	must.Create(t, home.PersistentVolumeClaims(namespace), claim)
	must.Create(t, home.Pods(namespace), fabric.InWest(fabric.NewPod(namespace, name, name)))
	var there *corev1.Pod
	await.Until(t, "pod "+name+" runs in west", func() bool {
		pod := await.Pod(t, f.Home.Client(), namespace, name)
		there = await.Pod(t, f.West.Client(), namespace, name)
		return pod != nil && pod.Status.Phase == corev1.PodRunning && there != nil
	}, func() any { return await.Events(t, f.Home.Client(), namespace) })
	return there
}

// intact says whether a pod of west and its data are as they were.
func intact(t *testing.T, f *fabric.Fabric, namespace, name string, was *corev1.Pod) bool {
	t.Helper()
	pod, claim := await.Pod(t, f.West.Client(), namespace, name), await.Claim(t, f.West.Client(), namespace, name)
	shadow, err := f.Agents.ShadowPods(namespace).Get(t.Context(), name, metav1.GetOptions{})
	return err == nil && shadow.DeletionTimestamp == nil && pod != nil && pod.UID == was.UID && pod.DeletionTimestamp == nil && claim != nil &&
		claim.DeletionTimestamp == nil && await.Volume(t, f.West.Client(), claim.Spec.VolumeName) != nil
}

func stateOf(t *testing.T, f *fabric.Fabric) *metav1.Condition {
	t.Helper()
	remote, err := f.Remotes.Get(t.Context(), "west", metav1.GetOptions{})
	if err != nil {
		return nil
	}
	return meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.HomeInForce)
}

func inForce(t *testing.T, f *fabric.Fabric) bool {
	t.Helper()
	state := stateOf(t, f)
	return state != nil && state.Status == metav1.ConditionTrue
}

func awaitInForce(t *testing.T, f *fabric.Fabric) {
	t.Helper()
	await.Until(t, "home acts in west", func() bool { return inForce(t, f) }, func() any { return stateOf(t, f) })
	require.NoError(t, f.AwaitReady(t.Context(), "west", metav1.ConditionTrue))
}

func awaitDoubt(t *testing.T, f *fabric.Fabric, reason string) *metav1.Condition {
	t.Helper()
	await.Until(t, "home is in doubt", func() bool {
		state := stateOf(t, f)
		return state != nil && state.Status == metav1.ConditionFalse && state.Reason == reason
	}, func() any { return stateOf(t, f) })
	require.NoError(t, f.AwaitReady(t.Context(), "west", metav1.ConditionFalse))
	return stateOf(t, f)
}

func leaseOf(t *testing.T, f *fabric.Fabric) *coordinationv1.Lease {
	t.Helper()
	id, err := f.HomeID(t.Context())
	require.NoError(t, err)
	return must.Get(t, f.West.Client().CoordinationV1().Leases(keys.TenantPrefix+id), keys.HeartbeatLease)
}

// awaitSilence waits until nobody changes the Lease in west any more: neither the mark is renewed nor a heartbeat sent.
func awaitSilence(t *testing.T, f *fabric.Fabric) {
	t.Helper()
	last, since := "", time.Now()
	await.Until(t, "home renews neither its mark nor its heartbeat", func() bool {
		if now := leaseOf(t, f).ResourceVersion; now != last {
			last, since = now, time.Now()
		}
		return time.Since(since) > 5*time.Second
	})
}

func markOf(t *testing.T, f *fabric.Fabric) homeepoch.Mark {
	t.Helper()
	return homeepoch.ParseMark(leaseOf(t, f).Annotations[keys.HomeEpoch])
}

// setMark writes a mark in the stead of home's, or takes that away. Heartbeats change the same Lease.
func setMark(t *testing.T, f *fabric.Fabric, mark homeepoch.Mark) {
	t.Helper()
	require.NoError(t, retry.RetryOnConflict(retry.DefaultBackoff, func() error {
		lease := leaseOf(t, f)
		delete(lease.Annotations, keys.HomeEpoch)
		if !mark.None() {
			encoded, err := mark.Encode()
			require.NoError(t, err)
			lease.Annotations[keys.HomeEpoch] = encoded
		}
		_, err := f.West.Client().CoordinationV1().Leases(lease.Namespace).Update(t.Context(), lease, metav1.UpdateOptions{})
		return err
	}))
}

// lodestone runs the plugin with all rights, and returns its exit code and what it printed.
func lodestone(t *testing.T, f *fabric.Fabric, args ...string) (code int, out, said string) {
	t.Helper()
	contexts, err := f.Contexts()
	require.NoError(t, err)
	program, err := f.BuildPlugin(t.Context())
	require.NoError(t, err)
	ctx, cancel := context.WithTimeout(t.Context(), 2*await.Long)
	defer cancel()
	command := exec.CommandContext(ctx, program, append([]string{"--kubeconfig", contexts, "--context", f.Home.Name()}, args...)...)
	var stdout, stderr bytes.Buffer
	command.Stdout, command.Stderr = &stdout, &stderr
	err = command.Run()
	var ended *exec.ExitError
	if errors.As(err, &ended) {
		return ended.ExitCode(), stdout.String(), stderr.String()
	}
	require.NoError(t, err)
	return 0, stdout.String(), stderr.String()
}

func unelected(c *provisioner.Config) { c.LeaderElect = false }

func unelectedNode(c *virtualnode.Config) { c.LeaderElect = false }
