package kind

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	appsv1 "k8s.io/api/apps/v1"
	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// cordon keeps new pods off a node of home until the returned function is called,
// which may be done twice.
func cordon(t *testing.T, node string) (uncordon func()) {
	t.Helper()
	home.kubectl(t, "cordon", node)
	uncordon = func() {
		_, err := home.try(context.Background(), "", "uncordon", node)
		require.NoError(t, err)
	}
	t.Cleanup(uncordon)
	return uncordon
}

// requirePending checks that a pod waits for a node for a while.
func requirePending(t *testing.T, namespace, name string) {
	t.Helper()
	eventually(t, "pod "+name+" waits for a node", func(c *assert.CollectT) {
		pod, err := home.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		require.NoError(c, err)
		assert.Nil(c, pod.DeletionTimestamp)
		assert.Empty(c, pod.Spec.NodeName)
	})
	consistently(t, "pod "+name+" goes on waiting, and nowhere else", func() bool {
		pod, err := home.client.CoreV1().Pods(namespace).Get(t.Context(), name, metav1.GetOptions{})
		return err == nil && pod.Spec.NodeName == "" && pod.Status.Phase == corev1.PodPending
	})
}

func TestPodWaitsForItsCordonedNodeOnEitherSide(t *testing.T) {
	testbed.NotInShort(t)
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db"}
	volumes, index := spread(t, db)
	for name, node := range map[string]string{"west": virtualNode, "home": home.node} {
		t.Log("The node of the replica in " + name + " takes no new pods.")
		before := volumes[name].sum(t, "blob")
		uncordon := cordon(t, node)
		deletePod(t, readyPod(t, shop, db.pod(index[name])))
		requirePending(t, shop, db.pod(index[name]))

		uncordon()
		pod := readyPod(t, shop, db.pod(index[name]))

		assert.Equal(t, node, pod.Spec.NodeName)
		assert.Equal(t, before, volumes[name].sum(t, "blob"))
		assert.Len(t, volumes[name].starts(t), 2)
	}

	t.Log("The namespace is deleted with pods and claims in it.")
	removeNamespace(t, home, shop)
	for _, data := range volumes {
		data.requireGone(t)
	}
	eventually(t, "the namespace in west is given back", func(c *assert.CollectT) {
		assert.NoError(c, gone(west.client.CoreV1().Namespaces().Get(t.Context(), shop, metav1.GetOptions{})))
	})
}

func TestDrainOfTheVirtualNodeEndsItsPodsAndTheyComeBack(t *testing.T) {
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db", replicas: 1, spec: inWest}
	home.apply(t, db.manifest())
	pod := db.ready(t, 1)[0]
	data := volumeOf(t, shop, db.claim(0))
	before := data.sum(t, "blob")
	uncordon := cordon(t, virtualNode)

	home.kubectl(t, "drain", virtualNode, "--ignore-daemonsets", "--timeout=120s", "--pod-selector=app=db")

	requireNoPods(t, west, shop)
	requirePending(t, shop, db.pod(0))
	uncordon()
	next := db.ready(t, 1)[0]
	assert.NotEqual(t, pod.UID, next.UID)
	assert.Equal(t, before, data.sum(t, "blob"))
	assert.Len(t, data.starts(t), 2)
}

// inWest and atHome choose a pod's cluster, as lines of its spec.
const (
	inWest = "      nodeSelector: {lodestone.dev/cluster: west}\n"
	atHome = "      nodeSelector: {kubernetes.io/hostname: home-control-plane}\n"
)

// redis is a pod of Redis without a volume, on a chosen side.
func redis(namespace, name, where string) string {
	return fmt.Sprintf(`apiVersion: v1
kind: Pod
metadata: {namespace: %[1]s, name: %[2]s, labels: {app: %[2]s}}
spec:
%[3]s
  terminationGracePeriodSeconds: 2
  containers:
  - name: redis
    image: %[4]s
    command: [redis-server, --protected-mode, "no", --save, "", --dir, /tmp]
    ports: [{containerPort: 6379}]
    readinessProbe: {tcpSocket: {port: 6379}, periodSeconds: 1}
`, namespace, name, strings.TrimPrefix(strings.TrimSuffix(where, "\n"), "    "), image)
}

func TestLogsExecAndPortForwardReachAPodInWest(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	home.apply(t, redis(shop, "cache", inWest))
	pod := readyPod(t, shop, "cache")
	require.Equal(t, virtualNode, pod.Spec.NodeName)

	assert.Contains(t, home.kubectl(t, "logs", "cache", "-n", shop), "Ready to accept connections")
	assert.Equal(t, 2, strings.Count(home.kubectl(t, "logs", "cache", "-n", shop, "--tail=2"), "\n"))

	assert.Equal(t, "PONG\n", home.kubectl(t, "exec", "cache", "-n", shop, "--", "redis-cli", "PING"))
	echoed, err := home.try(t.Context(), "what goes in comes out", "exec", "-i", "cache", "-n", shop, "--", "cat")
	require.NoError(t, err)
	assert.Equal(t, "what goes in comes out", echoed)
	_, err = home.try(t.Context(), "", "exec", "cache", "-n", shop, "--", "sh", "-c", "exit 7")
	var exit *exec.ExitError
	require.ErrorAs(t, err, &exit)
	assert.Equal(t, 7, exit.ExitCode(), "the exit code comes back")

	assert.Equal(t, "+PONG\r\n", ask(t, forward(t, shop, "cache", 6379), "PING\r\n"))
}

func TestDebugAndResizeReachAPodInWest(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, strings.Replace(redis(shop, "cache", inWest), "    ports:", "    resources: {requests: {cpu: 10m}}\n    ports:", 1))
	pod := readyPod(t, shop, "cache")
	require.Equal(t, virtualNode, pod.Spec.NodeName)

	home.kubectl(t, "debug", "cache", "-n", shop, "--profile=baseline", "--image="+image, "--container=look", "--", "redis-cli", "PING")
	eventually(t, "the debug container runs beside redis, and its end shows at home", func(c *assert.CollectT) {
		said, err := home.try(t.Context(), "", "logs", "cache", "-n", shop, "-c", "look")
		assert.NoError(c, err)
		assert.Equal(c, "PONG\n", said)
		now, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "cache", metav1.GetOptions{})
		require.NoError(c, err)
		require.Len(c, now.Status.EphemeralContainerStatuses, 1)
		assert.NotNil(c, now.Status.EphemeralContainerStatuses[0].State.Terminated)
	})

	home.kubectl(t, "patch", "pod", "cache", "-n", shop, "--subresource=resize",
		"--patch", `{"spec": {"containers": [{"name": "redis", "resources": {"requests": {"cpu": "20m"}}}]}}`)
	eventually(t, "the kubelet in west has resized the container, and home shows it", func(c *assert.CollectT) {
		now, err := home.client.CoreV1().Pods(shop).Get(t.Context(), "cache", metav1.GetOptions{})
		require.NoError(c, err)
		require.Len(c, now.Status.ContainerStatuses, 1)
		require.NotNil(c, now.Status.ContainerStatuses[0].Resources)
		assert.Equal(c, "20m", now.Status.ContainerStatuses[0].Resources.Requests.Cpu().String())
	})
	now := readyPod(t, shop, "cache")
	assert.Equal(t, pod.UID, now.UID)
	assert.Zero(t, now.Status.ContainerStatuses[0].RestartCount, "nothing was restarted for it")
}

// TestKubeProxyOfHomeIsCompleteOnceItIsKeptOffTheVirtualNode: it was there before Lodestone, and tolerates every taint.
func TestKubeProxyOfHomeIsCompleteOnceItIsKeptOffTheVirtualNode(t *testing.T) {
	testbed.NotInShort(t)
	needsClusters(t)
	api := home.client.AppsV1().DaemonSets("kube-system")
	wants := func(c require.TestingT, nodes int32) *appsv1.DaemonSet {
		proxy, err := api.Get(t.Context(), "kube-proxy", metav1.GetOptions{})
		require.NoError(c, err)
		require.Equal(c, proxy.Generation, proxy.Status.ObservedGeneration)
		require.Equal(c, nodes, proxy.Status.DesiredNumberScheduled)
		return proxy
	}
	before := wants(t, 2)
	require.Equal(t, int32(1), before.Status.NumberReady, "its pod on the virtual node waits")
	bindings := home.client.AdmissionregistrationV1().MutatingAdmissionPolicyBindings()
	binding, err := bindings.Get(t.Context(), "lodestone-daemonsets", metav1.GetOptions{})
	if os.Getenv(built.Variable) != "" && apierrors.IsNotFound(err) {
		t.Skip("a webhook has the place of the policy that this test takes away for a while: Kubernetes here serves none")
	}
	require.NoError(t, err)
	t.Cleanup(func() { // the policy would give what is put back the requirement again
		ctx := context.WithoutCancel(t.Context())
		require.NoError(t, bindings.Delete(ctx, binding.Name, metav1.DeleteOptions{}))
		eventually(t, "kube-proxy wants a pod on each node again", func(c *assert.CollectT) {
			_, err := home.try(ctx, "", "patch", "daemonset", "kube-proxy", "-n", "kube-system", "--type=json",
				`--patch=[{"op": "remove", "path": "/spec/template/spec/affinity"}]`)
			require.NoError(c, err)
			now, err := api.Get(ctx, "kube-proxy", metav1.GetOptions{})
			require.NoError(c, err)
			require.Nil(c, now.Spec.Template.Spec.Affinity)
		})
		binding.ResourceVersion, binding.UID = "", ""
		_, err := bindings.Create(ctx, binding, metav1.CreateOptions{})
		require.NoError(t, err)
		// The rollout does not come to it: the pod that waits on the virtual node is all that may be missing.
		_, err = home.try(ctx, "", "delete", "pod", "-n", "kube-system", "-l", "k8s-app=kube-proxy", "--field-selector=spec.nodeName="+home.node)
		require.NoError(t, err)
		eventually(t, "its pod of that kind runs", func(c *assert.CollectT) {
			proxy, err := api.Get(ctx, "kube-proxy", metav1.GetOptions{})
			require.NoError(c, err)
			require.Equal(c, proxy.Generation, proxy.Status.ObservedGeneration)
			require.Equal(c, int32(1), proxy.Status.NumberAvailable)
			require.Equal(c, proxy.Status.CurrentNumberScheduled, proxy.Status.UpdatedNumberScheduled)
		})
		requireAnswers(ctx, t, apiAndDNS...)
	})

	said, code := lodestone(t, "daemonsets", "daemonset/kube-proxy", "-n", "kube-system", "--yes")
	require.Zero(t, code, said)
	assert.Contains(t, said, "daemonset/kube-proxy -n kube-system kept off virtual nodes")

	home.kubectl(t, "rollout", "status", "daemonset", "kube-proxy", "-n", "kube-system", "--timeout=120s")
	eventually(t, "kube-proxy wants no pod on the virtual node, and is complete", func(c *assert.CollectT) {
		proxy := wants(c, 1)
		require.Equal(c, int32(1), proxy.Status.NumberAvailable)
		require.Equal(c, int32(1), proxy.Status.UpdatedNumberScheduled)
	})
	requireAnswers(t.Context(), t, apiAndDNS...)
	said, code = lodestone(t, "status")
	require.Zero(t, code, said)
	assert.NotContains(t, said, "kube-proxy")
}

// ask sends a line over TCP and returns the line that answers it.
func ask(t *testing.T, address, question string) string {
	t.Helper()
	connection, err := (&net.Dialer{Timeout: 10 * time.Second}).DialContext(t.Context(), "tcp", address)
	require.NoError(t, err)
	defer connection.Close()
	require.NoError(t, connection.SetDeadline(time.Now().Add(time.Minute)))
	_, err = connection.Write([]byte(question))
	require.NoError(t, err)
	answer, err := bufio.NewReader(connection).ReadString('\n')
	require.NoError(t, err)
	return answer
}

var forwarding = regexp.MustCompile(`^Forwarding from (127\.0\.0\.1:\d+)`)

// forward runs kubectl port-forward until the test ends and returns the address at
// which it listens. A test that fails shows what kubectl says.
func forward(t *testing.T, namespace, pod string, port int) string {
	t.Helper()
	ctx, cancel := context.WithCancel(t.Context())
	cmd := exec.CommandContext(ctx, program("kubectl"), "--context", "kind-home", "port-forward", "-n", namespace, "pod/"+pod,
		fmt.Sprintf(":%d", port))
	var said strings.Builder // to be read once kubectl has ended
	cmd.Env, cmd.Stderr = environment(), &said
	output, err := cmd.StdoutPipe()
	require.NoError(t, err)
	require.NoError(t, cmd.Start())
	t.Cleanup(func() {
		cancel()
		err := cmd.Wait()
		if t.Failed() || (err != nil && !errors.As(err, new(*exec.ExitError))) {
			t.Logf("kubectl port-forward: %v: %s", err, said.String())
		}
	})
	line, err := bufio.NewReader(output).ReadString('\n')
	require.NoError(t, err)
	match := forwarding.FindStringSubmatch(line)
	require.NotNil(t, match, "kubectl says %q", line)
	return match[1]
}

// webPod is a pod's spec that uses a claim together with others of its kind, as lines
// with their indentation (2). It takes its time to end.
const webPod = `  terminationGracePeriodSeconds: 60
  containers:
  - name: web
    image: %s
    command: [sh, -c, "trap 'sleep 8; exit 0' TERM; echo $HOSTNAME >>/data/started; touch /tmp/ready; while :; do sleep 1 & wait $!; done"]
    readinessProbe: {exec: {command: [test, -e, /tmp/ready]}, periodSeconds: 1}
    volumeMounts: [{name: data, mountPath: /data}]
  volumes: [{name: data, persistentVolumeClaim: {claimName: web}}]
`

func TestPodsThatAreMadeDuringAMoveWaitAndRunAtTheTarget(t *testing.T) {
	testbed.NotInShort(t)
	t.Parallel()
	shop := namespace(t)
	home.apply(t, fmt.Sprintf(shared, shop, "web"))
	spec := fmt.Sprintf(webPod, image)
	home.apply(t, fmt.Sprintf("apiVersion: v1\nkind: Pod\nmetadata: {namespace: %s, name: first}\nspec:\n  nodeSelector: "+
		"{kubernetes.io/hostname: home-control-plane}\n%s", shop, spec))
	readyPod(t, shop, "first")
	home.kubectl(t, "delete", "pod", "first", "-n", shop, "--grace-period=1")
	home.apply(t, fmt.Sprintf(`apiVersion: apps/v1
kind: Deployment
metadata: {namespace: %s, name: web}
spec:
  replicas: 1
  selector: {matchLabels: {app: web}}
  template:
    metadata: {labels: {app: web}}
    spec:
%s`, shop, strings.ReplaceAll("\n"+spec, "\n", "\n    ")[1:]+"\n"))
	home.kubectl(t, "wait", "deployment", "web", "-n", shop, "--for=condition=Available", "--timeout=180s")
	pods := func(c assert.TestingT) []corev1.Pod {
		found, err := home.client.CoreV1().Pods(shop).List(t.Context(), metav1.ListOptions{LabelSelector: "app=web"})
		assert.NoError(c, err)
		return found.Items
	}

	made := move(t, shop, "web", "west")
	require.Equal(t, v1alpha1.MoveQuiesce, reaches(t, made, v1alpha1.MoveQuiesce).Status.Phase)
	// Pods that are made before the claim has the lock start at the source, and are ended.
	eventually(t, "the claim has the lock", func(c *assert.CollectT) {
		claim, err := home.client.CoreV1().PersistentVolumeClaims(shop).Get(t.Context(), "web", metav1.GetOptions{})
		assert.NoError(c, err)
		assert.Contains(c, claim.Labels, keys.Moving)
	})
	home.kubectl(t, "scale", "deployment", "web", "-n", shop, "--replicas=3")

	eventually(t, "all that are made meanwhile wait at the gate", func(c *assert.CollectT) {
		waiting := 0
		for _, pod := range pods(c) {
			if pod.DeletionTimestamp != nil {
				continue
			}
			assert.Empty(c, pod.Spec.NodeName)
			assert.Contains(c, pod.Spec.SchedulingGates, corev1.PodSchedulingGate{Name: keys.MovingGate})
			waiting++
		}
		assert.Equal(c, 3, waiting)
	})
	requireMoved(t, made)
	eventually(t, "they run at the target", func(c *assert.CollectT) {
		running := pods(c)
		assert.Len(c, running, 3)
		for i := range running {
			assert.True(c, isReady(&running[i]))
			assert.Equal(c, virtualNode, running[i].Spec.NodeName)
			assert.Empty(c, running[i].Spec.SchedulingGates)
		}
	})
	assert.Equal(t, 5, strings.Count(shell(t, shop, "deployment/web", "cat /data/started"), "\n"),
		"starts of which the volume knows: the first, one before and three after the move")
}

const service = `apiVersion: v1
kind: Service
metadata: {namespace: %[1]s, name: %[2]s}
spec: {selector: {app: %[2]s}, ports: [{port: 6379}]}
`

func TestServiceReachesThePodsOfBothClustersFromEither(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	sides := map[string]string{"near": atHome, "far": inWest}
	for name, where := range sides {
		home.apply(t, fmt.Sprintf(service, shop, name)+"---\n"+redis(shop, name, where))
	}
	far := readyPod(t, shop, "far")
	near := readyPod(t, shop, "near")
	require.Equal(t, virtualNode, far.Spec.NodeName)
	assert.True(t, strings.HasPrefix(near.Status.PodIP, "10.11."), "address %s", near.Status.PodIP)
	assert.True(t, strings.HasPrefix(far.Status.PodIP, "10.12."), "address %s", far.Status.PodIP)
	home.kubectl(t, "exec", "near", "-n", shop, "--", "redis-cli", "SET", "where", "near")
	west.kubectl(t, "exec", "far", "-n", shop, "--", "redis-cli", "SET", "where", "far")

	for from, in := range map[string]*cluster{"near": home, "far": west} {
		for to := range sides {
			eventually(t, fmt.Sprintf("pod %s reaches service %s by its name", from, to), func(c *assert.CollectT) {
				output, err := in.try(t.Context(), "", "exec", from, "-n", shop, "--", "timeout", "10", "redis-cli", "-h", to, "GET", "where")
				require.NoError(c, err)
				assert.Equal(c, to, strings.TrimSpace(output))
			})
		}
	}
}

// spread runs keepers with one replica each side and returns where their files are,
// by cluster name, with the index of the replica.
func spread(t *testing.T, k keepers) (volumes map[string]*volume, index map[string]int) {
	t.Helper()
	k.replicas = 2
	home.apply(t, k.manifest())
	volumes, index = map[string]*volume{}, map[string]int{}
	for i, pod := range k.ready(t, 2) {
		data := volumeOf(t, k.namespace, k.claim(i))
		assert.Equal(t, pod.Spec.NodeName == virtualNode, data.in == west, "pod %s is on node %s, its files in %s", pod.Name, pod.Spec.NodeName,
			data.in.name)
		volumes[data.in.name], index[data.in.name] = data, i
	}
	require.Len(t, volumes, 2, "one replica each side")
	return volumes, index
}

func TestStatefulSetKeepsItsFilesWhereverItsReplicasRan(t *testing.T) {
	t.Parallel()
	shop := namespace(t)
	db := keepers{namespace: shop, name: "db"}
	volumes, index := spread(t, db)
	before := map[string]string{}
	for name, data := range volumes {
		before[name] = data.sum(t, "blob")
	}
	requireSame := func(starts int) {
		t.Helper()
		for name, data := range volumes {
			i := index[name]
			require.Equal(t, data, volumeOf(t, shop, db.claim(i)), "claim %d has the volume that it had", i)
			assert.Equal(t, before[name], data.sum(t, "blob"), "in %s", name)
			assert.Len(t, data.starts(t), starts, "starts in %s", name)
		}
	}

	t.Log("Pods that are deleted come back to their files.")
	for _, pod := range db.ready(t, 2) {
		deletePod(t, pod)
	}
	db.ready(t, 2)
	requireSame(2)

	t.Log("Scaled to 0 and back, they do so too.")
	db.scale(t, 0)
	requireNoPods(t, west, shop)
	db.scale(t, 2)
	db.ready(t, 2)
	requireSame(3)

	t.Log("A claim that its user deletes takes its files with it, and only its own.")
	db.scale(t, 0)
	home.kubectl(t, "delete", "pvc", db.claim(index["west"]), "-n", shop)
	volumes["west"].requireGone(t)
	there, err := volumes["home"].there(t.Context())
	require.NoError(t, err)
	assert.True(t, there)
	home.kubectl(t, "delete", "pvc", db.claim(index["home"]), "-n", shop)
	volumes["home"].requireGone(t)
}

func requireNoPods(t *testing.T, in *cluster, namespace string) {
	t.Helper()
	eventually(t, "no pods are left in "+in.name, func(c *assert.CollectT) {
		pods, err := in.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
		require.NoError(c, err)
		assert.Empty(c, pods.Items)
	})
}
