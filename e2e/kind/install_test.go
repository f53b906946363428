package kind

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/stretchr/testify/assert"
	"github.com/stretchr/testify/require"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/lodestone-storage/lodestone/e2e/must"
)

// Images are in the nodes under these names. An upgrade takes the same ones by another tag: what is tried is how programs are replaced.
const (
	registry = "docker.io/library"
	oldTag   = "dev"
	newTag   = "next"
	agents   = "lodestone-remote"
)

// needsBareClusters skips a test unless the clusters have no Lodestone until a test installs it.
func needsBareClusters(t *testing.T) {
	t.Helper()
	if os.Getenv("LODESTONE_INSTALL") == "" {
		t.Skip("needs two kind clusters without Lodestone: run make e2e-install")
	}
	needsClusters(t)
	names := map[*cluster][]string{home: {"provisioner", "extender", "virtualnode", "mover"}, west: {"remote-agent", "mover"}}
	for c, names := range names {
		for _, name := range names {
			image := registry + "/lodestone-" + name
			_, err := c.inNode(t.Context(), "ctr", "-n", "k8s.io", "images", "tag", "--force", image+":"+oldTag, image+":"+newTag)
			require.NoError(t, err)
		}
	}
}

// TestInstalledWithHelm installs the chart with its defaults, goes over to other images and to a second scheduler in one upgrade, and
// removes it.
func TestInstalledWithHelm(t *testing.T) {
	needsBareClusters(t)
	releases := map[*cluster]string{home: "lodestone", west: "lodestone-remote"}
	upgrade := func(c *cluster, tag string, set ...string) {
		t.Helper()
		args := []string{"upgrade", "--install", releases[c], filepath.Join("..", "..", "bin", "chart", "lodestone"),
			"--set", "role=" + map[*cluster]string{home: "home", west: "remote"}[c], "--set", "registry=" + registry, "--set", "tag=" + tag}
		for _, value := range set {
			args = append(args, "--set", value)
		}
		said := helm(t, c, append(args, "--wait", "--timeout", "3m")...)
		assert.Contains(t, said, "STATUS: deployed")
	}
	upgrade(west, oldTag)
	upgrade(home, oldTag)
	shop := peered(t)
	here, there := uses(t, shop, "here", atHome), uses(t, shop, "there", inWest)

	before := programs(t)
	upgrade(west, oldTag)
	upgrade(home, oldTag)
	assert.Equal(t, before, programs(t), "the same values again end no program")
	upgrade(west, newTag)
	upgrade(home, newTag, "scheduler=second")
	requireReplacedAll(t, before)
	here.requireKept(t)
	there.requireKept(t)
	home.kubectl(t, "label", "namespace", shop, "lodestone.dev/scheduler=enabled")
	for name, side := range map[string]string{"later": atHome, "later-there": inWest} {
		later := uses(t, shop, name, side)
		assert.Equal(t, "lodestone-scheduler", later.pod.Spec.SchedulerName)
	}

	parted(t, shop)
	helm(t, home, "uninstall", releases[home], "--wait", "--timeout", "3m")
	helm(t, west, "uninstall", releases[west], "--wait", "--timeout", "3m")
	kept := regexp.MustCompile(`^(namespace|customresourcedefinition\.apiextensions\.k8s\.io|storageclass\.storage\.k8s\.io)/`)
	written := regexp.MustCompile(`^(lease\.coordination\.k8s\.io|csistoragecapacity\.storage\.k8s\.io)/`)
	for _, in := range []*cluster{home, west} {
		eventually(t, "nothing stays in "+in.name+" but what docs/install.md says", func(c *assert.CollectT) {
			for _, object := range ofLodestone(t, in) {
				assert.True(c, kept.MatchString(object) || written.MatchString(object), object)
			}
		})
	}
	// The next test begins with clusters that have nothing.
	for _, in := range []*cluster{home, west} {
		left := slices.DeleteFunc(ofLodestone(t, in), func(object string) bool { return !kept.MatchString(object) })
		require.NotEmpty(t, left)
		in.kubectl(t, append([]string{"delete", "--wait"}, left...)...)
		assert.Empty(t, ofLodestone(t, in), "in %s", in.name)
	}
}

// TestInstalledByThePlugin installs with kubectl lodestone install, has kube-scheduler of home's node ask the extender, upgrades, and
// removes all of it.
func TestInstalledByThePlugin(t *testing.T) {
	needsBareClusters(t)
	of := map[*cluster][]string{home: {"--context", "kind-home"}, west: {"--context", "kind-west", "--remote"}}
	install := func(c *cluster, tag string) string {
		t.Helper()
		said, code := lodestone(t, append([]string{"install", "--registry", registry, "--tag", tag}, of[c]...)...)
		t.Log(said)
		require.Zero(t, code, said)
		return said
	}
	assert.Contains(t, install(west, oldTag), "kubectl lodestone peer --context HOME")
	said := install(home, oldTag)
	assert.Contains(t, said, `context "kind-home", kind, Kubernetes v1`)
	assert.Contains(t, said, "kubectl lodestone install --configure-scheduler")
	unconfigure := configureScheduler(t)
	shop := peered(t)
	here, there := uses(t, shop, "here", atHome), uses(t, shop, "there", inWest)
	assert.Equal(t, "default-scheduler", there.pod.Spec.SchedulerName)
	for _, used := range []use{here, there} {
		assert.Contains(t, used.pod.Spec.Containers[0].Resources.Requests, corev1.ResourceName("lodestone.dev/scheduling"))
	}
	said, code := lodestone(t, "doctor")
	t.Log(said)
	assert.Zero(t, code, "doctor finds a problem")
	assert.Contains(t, said, "kube-scheduler asks")

	before := programs(t)
	for _, c := range []*cluster{west, home} {
		assert.Regexp(t, `0 objects made, 0 changed, \d+ as they were, 0 removed`, install(c, oldTag))
	}
	assert.Equal(t, before, programs(t))
	install(west, newTag)
	install(home, newTag)
	requireReplacedAll(t, before)
	here.requireKept(t)
	there.requireKept(t)
	uses(t, shop, "later", atHome)
	uses(t, shop, "later-there", inWest)

	for _, c := range []*cluster{home, west} {
		said, code := lodestone(t, append([]string{"uninstall", "--yes"}, of[c]...)...)
		assert.Equal(t, 3, code, said)
		assert.Contains(t, said, "Lodestone is in use")
	}
	here.requireKept(t)
	there.requireKept(t)
	parted(t, shop)
	for _, c := range []*cluster{home, west} {
		said, code := lodestone(t, append([]string{"uninstall", "--yes"}, of[c]...)...)
		require.Zero(t, code, said)
		assert.Equal(t, c == home, strings.Contains(said, "kube-scheduler still asks the extender on "+home.node), said)
		assert.Empty(t, ofLodestone(t, c), "in %s", c.name)
	}
	unconfigure()
}

func helm(t *testing.T, c *cluster, args ...string) string {
	t.Helper()
	args = append([]string{"--kube-context", "kind-" + c.name}, args...)
	output, err := run(t.Context(), "", filepath.Join("..", "..", "bin", "helm"), args...)
	require.NoError(t, err)
	return output
}

// configureScheduler has the plugin, on the node of home, have kube-scheduler ask the extender. It returns what puts
// kube-scheduler's manifest back.
func configureScheduler(t *testing.T) (back func()) {
	t.Helper()
	_, err := run(t.Context(), "", "docker", "cp", filepath.Join("..", "..", "bin", "kubectl-lodestone"), home.node+":/usr/local/bin/")
	require.NoError(t, err)
	const of = "/etc/kubernetes/manifests/kube-scheduler.yaml"
	manifest, err := home.inNode(t.Context(), "cat", of)
	require.NoError(t, err)
	configure := []string{"kubectl-lodestone", "install", "--configure-scheduler", "--kubeconfig", "/etc/kubernetes/admin.conf"}
	for _, want := range []string{"and about no others", "has this configuration already"} {
		said, err := run(t.Context(), "", "docker", append([]string{"exec", home.node, "sh", "-c", `"$@" 2>&1`, "-"}, configure...)...)
		require.NoError(t, err, said)
		assert.Contains(t, said, want)
	}
	return func() {
		_, err := home.inNode(t.Context(), "cp", "/etc/kubernetes/lodestone/kube-scheduler.yaml.before", of)
		require.NoError(t, err)
		now, err := home.inNode(t.Context(), "cat", of)
		require.NoError(t, err)
		require.Equal(t, manifest, now)
		eventually(t, "kube-scheduler runs as before", func(c *assert.CollectT) {
			pod, err := home.client.CoreV1().Pods(metav1.NamespaceSystem).Get(t.Context(), "kube-scheduler-"+home.node, metav1.GetOptions{})
			require.NoError(c, err)
			assert.NotContains(c, pod.Annotations, "lodestone.dev/configuration")
			assert.True(c, isReady(pod))
		})
	}
}

// peered peers home with west, and returns a namespace of home that is open to it.
func peered(t *testing.T) string {
	t.Helper()
	address, err := run(t.Context(), "", "docker", "inspect", "-f", "{{.NetworkSettings.Networks.kind.IPAddress}}", west.node)
	require.NoError(t, err)
	said, code := lodestone(t, "peer", "--remote-context", "kind-west", "--name", "west", "--namespaces", prefix+"*",
		"--remote-server", "https://"+strings.TrimSpace(address)+":6443")
	require.Zero(t, code, said)
	return bare(t)
}

// parted ends what uses Lodestone, and the peering.
func parted(t *testing.T, shop string) {
	t.Helper()
	removeNamespace(t, home, shop)
	eventually(t, "no volume is left", func(c *assert.CollectT) {
		for _, in := range []*cluster{home, west} {
			volumes, err := in.client.CoreV1().PersistentVolumes().List(t.Context(), metav1.ListOptions{})
			require.NoError(c, err)
			assert.Empty(c, volumes.Items)
		}
	})
	said, code := lodestone(t, "unpeer", "west", "--remote-context", "kind-west", "--yes")
	require.Zero(t, code, said)
}

// use is a pod with a volume that it has written to.
type use struct {
	pod    *corev1.Pod
	volume *volume
}

// uses makes a claim of the class lodestone and a pod with it on a side, which writes its name there.
func uses(t *testing.T, namespace, name, side string) use {
	t.Helper()
	home.apply(t, fmt.Sprintf(`apiVersion: v1
kind: PersistentVolumeClaim
metadata: {namespace: %s, name: %s}
spec: {storageClassName: lodestone, accessModes: [ReadWriteOnce], resources: {requests: {storage: 16Mi}}}
`, namespace, name))
	sleeps(t, namespace, name, side, "{name: data, persistentVolumeClaim: {claimName: "+name+"}}")
	shell(t, namespace, name, "echo "+name+" > /data/file && sync")
	u := use{pod: readyPod(t, namespace, name), volume: volumeOf(t, namespace, name)}
	assert.Equal(t, map[string]*cluster{atHome: home, inWest: west}[side], u.volume.in)
	u.requireKept(t)
	return u
}

// requireKept checks that the pod runs on, and that its file is there.
func (u use) requireKept(t *testing.T) {
	t.Helper()
	now := readyPod(t, u.pod.Namespace, u.pod.Name)
	assert.Equal(t, u.pod.UID, now.UID, "the pod is the same")
	assert.Zero(t, now.Status.ContainerStatuses[0].RestartCount)
	assert.Equal(t, u.pod.Name+"\n", u.volume.read(t, "file"))
	assert.Equal(t, u.pod.Name+"\n", shell(t, u.pod.Namespace, u.pod.Name, "cat /data/file"))
}

// programs returns the pods of Lodestone's programs in both clusters, by their names.
func programs(t *testing.T) map[string]types.UID {
	t.Helper()
	found := map[string]types.UID{}
	for c, namespace := range map[*cluster]string{home: system, west: agents} {
		pods := must.List(t, c.client.CoreV1().Pods(namespace))
		require.NotEmpty(t, pods.Items)
		for _, pod := range pods.Items {
			found[c.name+"/"+pod.Name] = pod.UID
		}
	}
	return found
}

// requireReplacedAll checks that other pods than before run, all with the images of the upgrade.
func requireReplacedAll(t *testing.T, before map[string]types.UID) {
	t.Helper()
	eventually(t, "all programs are those of the upgrade", func(c *assert.CollectT) {
		for in, namespace := range map[*cluster]string{home: system, west: agents} {
			pods, err := in.client.CoreV1().Pods(namespace).List(t.Context(), metav1.ListOptions{})
			require.NoError(c, err)
			for _, pod := range pods.Items {
				assert.NotContains(c, before, in.name+"/"+pod.Name)
				for _, container := range pod.Spec.Containers {
					if strings.HasPrefix(container.Image, registry) {
						assert.True(c, strings.HasSuffix(container.Image, ":"+newTag), container.Image)
					}
				}
				assert.True(c, isReady(&pod), pod.Name)
			}
		}
	})
}

// ofLodestone returns all objects of a cluster that have its name, but events, and APIServices, which come and go with custom
// resource definitions.
func ofLodestone(t *testing.T, c *cluster) (found []string) {
	t.Helper()
	kinds := strings.Fields(c.kubectl(t, "api-resources", "--verbs=list,get", "-o", "name"))
	var wanted []string
	for _, kind := range kinds {
		if !strings.HasPrefix(kind, "events") && kind != "apiservices.apiregistration.k8s.io" {
			wanted = append(wanted, kind)
		}
	}
	for _, line := range strings.Fields(c.kubectl(t, "get", strings.Join(wanted, ","), "-A", "-o", "name")) {
		if strings.Contains(line, "lodestone") {
			found = append(found, line)
		}
	}
	return found
}
