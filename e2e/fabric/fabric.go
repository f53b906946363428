// Package fabric sets up what the demo, the integration tests and the benchmarks
// have in common: two clusters on loopback, home and west, with Lodestone's
// manifests installed, played nodes and real storage classes in both, and the
// programs running with the rights of their own ServiceAccounts.
package fabric

import (
	"context"
	"fmt"
	"net"
	"os"
	"path/filepath"
	"slices"

	admissionregistrationv1 "k8s.io/api/admissionregistration/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/utils/ptr"

	"github.com/lodestone-storage/lodestone/e2e/built"
	"github.com/lodestone-storage/lodestone/e2e/fakekubelet"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/processes"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/clients"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// Names of what a Fabric holds.
const (
	System  = "lodestone-system"
	Storage = "lodestone-storage"

	// The real classes: Wait binds when a pod comes and is the default of its
	// cluster, Now binds at once.
	HomeWait, HomeNow = "home-wait", "home-now"
	WestWait, WestNow = "west-wait", "west-now"

	// Class is the virtual class that deploy/base makes.
	Class = "lodestone"

	// WestNode is the virtual node that stands for west.
	WestNode = "west"
)

// Options say what a Fabric is like; the zero value is usable.
type Options struct {
	// Tree is the root folder of the source tree whose manifests are installed; empty: of this one.
	Tree string
	// ControllerManagerQPS is the request rate of the controller managers; 0
	// means their default.
	ControllerManagerQPS float32
	// Zones labels the nodes with topology.kubernetes.io/zone home and west.
	Zones bool
	// Audit records what Lodestone writes; see Writes.
	Audit bool
	// AuditAll records all that any ServiceAccount asks for, instead; see Requests.
	AuditAll bool
	// Agent installs the remote agent in west, instead of what a remote cluster
	// without one needs. It is started with StartAgent.
	Agent bool
	// VirtualNode installs the virtual node program at home: the node west is
	// its own, and is not played. It is started with StartVirtualNode.
	VirtualNode bool
	// Webhook has a webhook do the work of MutatingAdmissionPolicies in home. It runs from the start. So it is, too, where home serves
	// no such policies, and where the environment variable LODESTONE_ADMISSION is webhook.
	Webhook bool
	// Drivers are CSI drivers, by cluster, that the nodes have beside that of the
	// real storage that a Fabric plays.
	Drivers map[string][]string
	// Attach has the nodes of home leave attachments to the attach-detach controller, for the
	// drivers that need them: those of package sidecars can.
	Attach bool
	// Programs are the paths of programs, by image: pods of which all containers
	// have such an image, or processes.Shell, really run; see package processes.
	Programs map[string]string
	// Exec has the nodes run commands in those pods, as kubectl exec does.
	Exec bool
	// Disks, if it has a root, holds the volumes of those pods: more than one Fabric can have
	// theirs there.
	Disks processes.Disks
	// APIServerArgs and ControllerManagerArgs are flags of those programs beside their own.
	APIServerArgs         []string
	ControllerManagerArgs []string
}

// tree is Tree, or this source tree.
func (o Options) tree() string {
	if o.Tree != "" {
		return o.Tree
	}
	return Root()
}

// drivers are those of the nodes of a cluster, none with a limit.
func (o Options) drivers(cluster string) map[string]int32 {
	drivers := map[string]int32{"disk." + cluster + ".test": 0}
	for _, name := range o.Drivers[cluster] {
		drivers[name] = 0
	}
	return drivers
}

// Fabric is two clusters with Lodestone installed, but not running.
type Fabric struct {
	Home, West               *testbed.Cluster
	HomeStorage, WestStorage *fakeprovisioner.Provisioner
	HomeNodes, WestNodes     *fakekubelet.Kubelets
	// HomePods and WestPods are the pods that really run, Disks their volumes.
	HomePods, WestPods *processes.Processes
	Disks              processes.Disks
	Remotes            *clients.RemoteClusters
	// Agents is the client, with all rights, of the remote agent's objects in west.
	Agents *clients.RemoteClient
	// Webhook is what Options.Webhook asks for; nil without.
	Webhook *Program
	// daemonSets is the webhook for DaemonSets while WithDaemonSetPolicy has taken it away.
	daemonSets *admissionregistrationv1.MutatingWebhookConfiguration

	extender string
	audit    audit
}

// Root returns the root folder of the source tree that the program runs in. Elsewhere it
// is the working directory, in which nothing will be found.
func Root() string {
	root, err := built.SourceTree()
	if err != nil {
		return "."
	}
	return root
}

// Start starts a Fabric; it ends with ctx.
func Start(ctx context.Context, o Options) (*Fabric, error) {
	extender, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	f := &Fabric{extender: extender}
	if o.Audit || o.AuditAll {
		policy := auditPolicy
		if o.AuditAll {
			policy = auditAllPolicy
		}
		if f.audit, err = newAudit(policy); err != nil {
			return nil, err
		}
		// Tests end with ctx, and call no Stop.
		context.AfterFunc(ctx, f.audit.remove)
	}
	config := func(name string, extenders ...string) testbed.Config {
		return testbed.Config{
			Name: name, Extenders: extenders, APIServerArgs: slices.Concat(f.audit.args(name), o.APIServerArgs),
			ControllerManagerQPS: o.ControllerManagerQPS, ControllerManagerBurst: int(2 * o.ControllerManagerQPS),
			ControllerManagerArgs: o.ControllerManagerArgs,
		}
	}
	clusters, err := testbed.Start(ctx, config("home", f.ExtenderURL()), config("west"))
	if err != nil {
		return nil, err
	}
	f.Home, f.West = clusters[0], clusters[1]
	if f.Remotes, err = clients.NewRemoteClusters(f.Home.AdminConfig()); err != nil {
		return nil, err
	}
	if f.Agents, err = clients.NewRemoteClient(f.West.AdminConfig()); err != nil {
		return nil, err
	}
	if o.Webhook, err = f.needsWebhook(o); err != nil {
		return nil, err
	}
	if err := f.Install(ctx, o); err != nil {
		return nil, err
	}
	return f, f.play(ctx, o)
}

// needsWebhook says whether a webhook does the work of MutatingAdmissionPolicies in home.
func (f *Fabric) needsWebhook(o Options) (bool, error) {
	policies, err := f.Home.ServesPolicies()
	return o.Webhook || !policies || os.Getenv("LODESTONE_ADMISSION") == "webhook", err
}

// freeAddress is where an extender will listen: nobody must seem to until it does.
func freeAddress(ctx context.Context) (string, error) {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", "127.0.0.1:0")
	if err != nil {
		return "", fmt.Errorf("find a port for the extender: %w", err)
	}
	if err := listener.Close(); err != nil {
		return "", fmt.Errorf("free the extender's port: %w", err)
	}
	return listener.Addr().String(), nil
}

// Another starts another home cluster beside the same west, with Lodestone installed, but not running. It has neither nodes nor storage of
// its own, and ends with ctx; Stop is for the first one alone.
func (f *Fabric) Another(ctx context.Context, name string, o Options) (*Fabric, error) {
	extender, err := freeAddress(ctx)
	if err != nil {
		return nil, err
	}
	other := &Fabric{West: f.West, WestStorage: f.WestStorage, WestNodes: f.WestNodes, WestPods: f.WestPods, Disks: f.Disks,
		Agents: f.Agents, extender: extender}
	clusters, err := testbed.Start(ctx, testbed.Config{Name: name, Extenders: []string{other.ExtenderURL()},
		ControllerManagerQPS: o.ControllerManagerQPS, ControllerManagerBurst: int(2 * o.ControllerManagerQPS)})
	if err != nil {
		return nil, err
	}
	other.Home = clusters[0]
	if other.Remotes, err = clients.NewRemoteClusters(other.Home.AdminConfig()); err != nil {
		return nil, err
	}
	if o.Webhook, err = other.needsWebhook(o); err != nil {
		return nil, err
	}
	return other, other.installHome(ctx, o)
}

// Stop ends the clusters and removes what the Fabric made.
func (f *Fabric) Stop() {
	f.HomePods.EndAll()
	f.WestPods.EndAll()
	f.Home.Stop()
	f.West.Stop()
	f.audit.remove()
}

// ExtenderURL is where kube-scheduler of home looks for its extender.
func (f *Fabric) ExtenderURL() string { return "http://" + f.extender }

// Install applies the manifests in both clusters, as a user would.
func (f *Fabric) Install(ctx context.Context, o Options) error {
	if err := f.installHome(ctx, o); err != nil {
		return err
	}
	if o.Agent {
		return f.installAgent(ctx, o)
	}
	if _, err := f.West.Kubectl(ctx, "", "apply", "-k", filepath.Join(o.tree(), "deploy", "remote-volumes")); err != nil {
		return fmt.Errorf("prepare west: %w", err)
	}
	return nil
}

// installHome applies those of home.
func (f *Fabric) installHome(ctx context.Context, o Options) error {
	if _, err := f.Home.Kubectl(ctx, "", "apply", "-k", homeManifests(o)); err != nil {
		return fmt.Errorf("install Lodestone in home: %w", err)
	}
	if _, err := f.Home.Kubectl(ctx, "", "wait", "--for=condition=Established", "crd/remoteclusters.lodestone.dev",
		"--timeout=30s"); err != nil {
		return fmt.Errorf("wait for the custom resources in home: %w", err)
	}
	if o.Webhook {
		var err error
		if f.Webhook, err = StartWebhook(ctx, f.Home); err != nil {
			return fmt.Errorf("start the webhook of home: %w", err)
		}
	}
	return nil
}

// NewClaim returns a claim of a class for 1 GiB.
func NewClaim(namespace, name, class string) *corev1.PersistentVolumeClaim {
	return &corev1.PersistentVolumeClaim{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PersistentVolumeClaimSpec{
			AccessModes:      []corev1.PersistentVolumeAccessMode{corev1.ReadWriteOnce},
			StorageClassName: &class,
			Resources:        corev1.VolumeResourceRequirements{Requests: corev1.ResourceList{corev1.ResourceStorage: resource.MustParse("1Gi")}},
		},
	}
}

// NewPod returns a pod that uses claims.
func NewPod(namespace, name string, claims ...string) *corev1.Pod {
	pod := &corev1.Pod{
		ObjectMeta: metav1.ObjectMeta{Namespace: namespace, Name: name},
		Spec: corev1.PodSpec{
			TerminationGracePeriodSeconds: ptr.To(int64(0)),
			Containers:                    []corev1.Container{{Name: "app", Image: "app"}},
		},
	}
	for _, claim := range claims {
		pod.Spec.Volumes = append(pod.Spec.Volumes, corev1.Volume{Name: claim, VolumeSource: corev1.VolumeSource{
			PersistentVolumeClaim: &corev1.PersistentVolumeClaimVolumeSource{ClaimName: claim},
		}})
	}
	return pod
}

// WithScratch gives a pod a generic ephemeral volume of a class, named scratch.
func WithScratch(pod *corev1.Pod, class string) *corev1.Pod {
	pod.Spec.Volumes = append(pod.Spec.Volumes,
		corev1.Volume{Name: "scratch", VolumeSource: corev1.VolumeSource{Ephemeral: &corev1.EphemeralVolumeSource{
			VolumeClaimTemplate: &corev1.PersistentVolumeClaimTemplate{Spec: NewClaim("", "", class).Spec},
		}}})
	return pod
}

// AtHome makes a pod run on a node of the home cluster.
func AtHome(pod *corev1.Pod) *corev1.Pod {
	return require(pod, corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpDoesNotExist})
}

// InWest makes a pod run on the virtual node of west.
func InWest(pod *corev1.Pod) *corev1.Pod {
	return require(pod, corev1.NodeSelectorRequirement{Key: keys.Cluster, Operator: corev1.NodeSelectorOpIn, Values: []string{"west"}})
}

// OnNode makes a pod run on one node.
func OnNode(pod *corev1.Pod, node string) *corev1.Pod {
	return require(pod, corev1.NodeSelectorRequirement{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}})
}

func require(pod *corev1.Pod, requirement corev1.NodeSelectorRequirement) *corev1.Pod {
	pod.Spec.Affinity = &corev1.Affinity{NodeAffinity: &corev1.NodeAffinity{
		RequiredDuringSchedulingIgnoredDuringExecution: &corev1.NodeSelector{
			NodeSelectorTerms: []corev1.NodeSelectorTerm{{MatchExpressions: []corev1.NodeSelectorRequirement{requirement}}},
		}}}
	return pod
}

// Prefer makes a pod run on a node if it can run there.
func Prefer(pod *corev1.Pod, node string) *corev1.Pod {
	if pod.Spec.Affinity == nil {
		pod.Spec.Affinity = &corev1.Affinity{}
	}
	if pod.Spec.Affinity.NodeAffinity == nil {
		pod.Spec.Affinity.NodeAffinity = &corev1.NodeAffinity{}
	}
	affinity := pod.Spec.Affinity.NodeAffinity
	affinity.PreferredDuringSchedulingIgnoredDuringExecution = append(affinity.PreferredDuringSchedulingIgnoredDuringExecution,
		corev1.PreferredSchedulingTerm{
			Weight: 100,
			Preference: corev1.NodeSelectorTerm{MatchExpressions: []corev1.NodeSelectorRequirement{
				{Key: corev1.LabelHostname, Operator: corev1.NodeSelectorOpIn, Values: []string{node}},
			}},
		})
	return pod
}
