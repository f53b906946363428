package story

import (
	"context"
	"fmt"
	"slices"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/pkg/backing"
	"github.com/lodestone-storage/lodestone/pkg/keys"
	"github.com/lodestone-storage/lodestone/pkg/locality"
)

var replicas = []string{"db-0", "db-1", "db-2", "db-3"}

func claimOf(replica string) string { return "data-" + replica }

// spread makes claims of the virtual class for pods of both clusters.
func (s *story) spread() step {
	return step{
		title: "A StatefulSet of four replicas, spread over both clusters, a claim each",
		words: "The class lodestone waits for the pod of a claim. kube-scheduler spreads the pods over the zones home and west; where a pod " +
			"lands, there its claim gets its volume.",
		acts: func() []act {
			return []act{
				s.apply(manifest("db")),
				s.until("all four pods run", s.run("shop", replicas...)),
				s.until("two claims have their volumes at home, two in west", s.gather),
				s.kubectl(home, "get", "pods", "-n", "shop", "-o", podColumns),
				s.kubectl(home, "get", "pvc", "-n", "shop", "-o",
					"custom-columns=CLAIM:.metadata.name,STATUS:.status.phase,CLASS:.spec.storageClassName,VOLUME:.spec.volumeName"),
			}
		},
	}
}

// gather finds the volumes of the four replicas.
func (s *story) gather(ctx context.Context) error {
	s.homes, s.wests = nil, nil
	for _, replica := range replicas {
		v, err := s.find(ctx, "shop", claimOf(replica), replica)
		if err != nil {
			return err
		}
		if v.in == home {
			s.homes = append(s.homes, v)
		} else {
			s.wests = append(s.wests, v)
		}
	}
	if err := counted("claims with volumes at home", len(s.homes), 2); err != nil {
		return err
	}
	return counted("claims with volumes in west", len(s.wests), 2)
}

const volumeColumns = `custom-columns=CLAIM:.spec.claimRef.name,STATUS:.status.phase,CLUSTER:.metadata.labels.lodestone\.dev/cluster,` +
	`DRIVER:.spec.csi.driver,BACKING CLAIM:.metadata.annotations.lodestone\.dev/backing`

// behind shows what is behind the claims.
func (s *story) behind() step {
	return step{
		title: "What is behind the claims: twins at home, shadows in west",
		words: "Behind a claim whose pod is at home is a real claim at home, its twin; behind the others a real claim in west, their shadow, " +
			"of the same name. " +
			"A virtual volume at home is mounted like the real one. One in west has a driver that no kubelet has, so it can never be mounted at " +
			"home by mistake.",
		acts: func() []act {
			volumes := append(append([]*volume{}, s.homes...), s.wests...)
			return []act{
				s.kubectl(home, "get", "pv", "-l", "lodestone.dev/cluster", "--sort-by=.spec.claimRef.name", "-o", volumeColumns),
				s.kubectl(home, "get", "pvc", "-n", fabric.Storage, "-o",
					"custom-columns=TWIN:.metadata.name,STATUS:.status.phase,CLASS:.spec.storageClassName,OF:.metadata.annotations.lodestone\\.dev/claim"),
				s.kubectl(west, "get", "pvc", "-n", "shop", "-o",
					"custom-columns=SHADOW:.metadata.name,STATUS:.status.phase,"+
						"CLASS:.spec.storageClassName,OF:.metadata.annotations.lodestone\\.dev/claim"),
				s.kubectl(west, "get", "pods", "-n", "shop", "-o", podColumns),
				s.now("two are twins at home and two are shadows in west, each with a real volume there", func(context.Context) error {
					for _, v := range volumes {
						if err := v.checkKind(); err != nil {
							return err
						}
					}
					return nil
				}),
				s.say("What happened to a claim is told on the claim:"),
				s.kubectl(home, "get", "events", "-n", "shop", "--field-selector", "involvedObject.kind=PersistentVolumeClaim,involvedObject.name="+
					s.wests[0].claim.Name, "-o", "custom-columns=REASON:.reason,FROM:.source.component,MESSAGE:.message"),
				s.until("an event on each claim says that it got its volume", s.eventTells(volumes)),
			}
		},
	}
}

func (s *story) eventTells(volumes []*volume) probe {
	return func(ctx context.Context) error {
		for _, v := range volumes {
			if _, err := s.event(ctx, v.claim.Namespace, "PersistentVolumeClaim", v.claim.Name, "ProvisioningSucceeded"); err != nil {
				return err
			}
		}
		return nil
	}
}

// event returns what an event with a reason says about an object of home.
func (s *story) event(ctx context.Context, namespace, kind, name, reason string) (*corev1.Event, error) {
	list, err := s.fabric.Home.Client().CoreV1().Events(namespace).List(ctx, metav1.ListOptions{
		FieldSelector: "involvedObject.kind=" + kind + ",involvedObject.name=" + name + ",reason=" + reason,
	})
	if err != nil {
		return nil, err
	}
	if len(list.Items) == 0 {
		return nil, fmt.Errorf("%s %s has no event %s", kind, name, reason)
	}
	return &list.Items[0], nil
}

// volume is all that there is behind a bound virtual claim.
type volume struct {
	claim   *corev1.PersistentVolumeClaim
	virtual *corev1.PersistentVolume
	in      where
	backing *corev1.PersistentVolumeClaim
	real    *corev1.PersistentVolume
	node    string // of the pod that uses it
	pod     string
}

// storage is what really holds the data of a cluster.
func (s *story) storage(in where) *fakeprovisioner.Provisioner {
	if in == home {
		return s.fabric.HomeStorage
	}
	return s.fabric.WestStorage
}

// find follows a claim to its data and fails at the first link that is not as it
// should be.
func (s *story) find(ctx context.Context, namespace, name, pod string) (*volume, error) {
	client := s.fabric.Home.Client().CoreV1()
	claim, err := client.PersistentVolumeClaims(namespace).Get(ctx, name, metav1.GetOptions{})
	if err != nil {
		return nil, err
	}
	if claim.Status.Phase != corev1.ClaimBound {
		return nil, fmt.Errorf("claim %s is %s", name, claim.Status.Phase)
	}
	v := &volume{claim: claim, pod: pod}
	if v.virtual, err = client.PersistentVolumes().Get(ctx, claim.Spec.VolumeName, metav1.GetOptions{}); err != nil {
		return nil, err
	}
	id, ok := locality.OfVolume(v.virtual.Spec.NodeAffinity)
	if !ok || id != v.virtual.Labels[keys.Cluster] {
		return nil, fmt.Errorf("volume %s has node affinity for cluster %q and the label %q", v.virtual.Name, id, v.virtual.Labels[keys.Cluster])
	}
	v.in = where(id)
	ref, err := backing.RefOf(v.virtual)
	if err != nil {
		return nil, err
	}
	if err := s.findBacking(ctx, v, ref); err != nil {
		return nil, err
	}
	v.node, err = s.nodeOf(ctx, namespace, pod)
	return v, err
}

func (s *story) findBacking(ctx context.Context, v *volume, ref backing.Ref) error {
	var err error
	if v.backing, err = s.cluster(v.in).Client().CoreV1().PersistentVolumeClaims(ref.Namespace).Get(ctx, ref.Name,
		metav1.GetOptions{}); err != nil {
		return fmt.Errorf("backing claim of %s: %w", v.claim.Name, err)
	}
	if v.backing.UID != ref.UID || v.backing.Labels[keys.ClaimUID] != string(v.claim.UID) {
		return fmt.Errorf("backing claim %s/%s in %s is not that of claim %s", ref.Namespace, ref.Name, v.in, v.claim.Name)
	}
	if v.backing.Status.Phase != corev1.ClaimBound {
		return fmt.Errorf("backing claim %s/%s in %s is %s", ref.Namespace, ref.Name, v.in, v.backing.Status.Phase)
	}
	if v.real, err = s.cluster(v.in).Client().CoreV1().PersistentVolumes().Get(ctx, v.backing.Spec.VolumeName,
		metav1.GetOptions{}); err != nil {
		return fmt.Errorf("real volume of %s: %w", v.claim.Name, err)
	}
	if !s.storage(v.in).Exists(v.real.Spec.CSI.VolumeHandle) {
		return fmt.Errorf("the storage of %s has no volume %s", v.in, v.real.Spec.CSI.VolumeHandle)
	}
	return nil
}

// checkKind fails unless a volume is a twin at home, with the real volume's own
// source, or a shadow in a remote cluster, whose source no kubelet at home knows.
func (v *volume) checkKind() error {
	source := v.virtual.Spec.CSI
	if !slices.Contains(v.backing.Finalizers, keys.BackingFinalizer) {
		return fmt.Errorf("backing claim %s has no finalizer %s", v.backing.Name, keys.BackingFinalizer)
	}
	if v.in == home {
		if v.backing.Namespace != fabric.Storage || source.Driver != v.real.Spec.CSI.Driver ||
			source.VolumeHandle != v.real.Spec.CSI.VolumeHandle {
			return fmt.Errorf("volume %s at home is not that of twin %s/%s", v.virtual.Name, v.backing.Namespace, v.backing.Name)
		}
		return nil
	}
	if v.backing.Namespace != v.claim.Namespace || v.backing.Name != v.claim.Name {
		return fmt.Errorf("shadow %s/%s has not the name of its claim %s/%s", v.backing.Namespace, v.backing.Name, v.claim.Namespace,
			v.claim.Name)
	}
	if source.Driver != keys.Driver {
		return fmt.Errorf("volume %s, whose data is in %s, has the driver %s, with which it could be mounted at home", v.virtual.Name, v.in,
			source.Driver)
	}
	return nil
}

// unchanged checks that a claim still has the very volume that it had, and its pod
// runs on the node where that volume is.
func (s *story) unchanged(volumes ...*volume) probe {
	return func(ctx context.Context) error {
		for _, was := range volumes {
			is, err := s.find(ctx, was.claim.Namespace, was.claim.Name, was.pod)
			switch {
			case err != nil:
				return err
			case is.claim.UID != was.claim.UID || is.backing.UID != was.backing.UID || is.real.UID != was.real.UID:
				return fmt.Errorf("claim %s has another volume than before", was.claim.Name)
			case is.node != was.node:
				return fmt.Errorf("pod %s is on node %s instead of %s, where its volume is", was.pod, is.node, was.node)
			}
		}
		return nil
	}
}

// getPod returns a pod of the home cluster.
func (s *story) getPod(ctx context.Context, namespace, name string) (*corev1.Pod, error) {
	return s.fabric.Home.Client().CoreV1().Pods(namespace).Get(ctx, name, metav1.GetOptions{})
}

// nodeOf returns the node of a pod that runs and is ready.
func (s *story) nodeOf(ctx context.Context, namespace, name string) (string, error) {
	pod, err := s.getPod(ctx, namespace, name)
	if err != nil {
		return "", err
	}
	if pod.DeletionTimestamp != nil {
		return "", fmt.Errorf("pod %s is being deleted", name)
	}
	if pod.Status.Phase != corev1.PodRunning || conditionOf(pod, corev1.PodReady).Status != corev1.ConditionTrue {
		return "", fmt.Errorf("pod %s is %s and not ready: %s", name, pod.Status.Phase, conditionOf(pod, corev1.PodScheduled).Message)
	}
	return pod.Spec.NodeName, nil
}

func conditionOf(pod *corev1.Pod, kind corev1.PodConditionType) corev1.PodCondition {
	for _, condition := range pod.Status.Conditions {
		if condition.Type == kind {
			return condition
		}
	}
	return corev1.PodCondition{}
}

// run checks that pods run and are ready.
func (s *story) run(namespace string, names ...string) probe {
	return func(ctx context.Context) error {
		for _, name := range names {
			if _, err := s.nodeOf(ctx, namespace, name); err != nil {
				return err
			}
		}
		return nil
	}
}

// runIn checks that pods run on nodes of one cluster.
func (s *story) runIn(in where, namespace string, names ...string) probe {
	return func(ctx context.Context) error {
		for _, name := range names {
			node, err := s.nodeOf(ctx, namespace, name)
			if err != nil {
				return err
			}
			object, err := s.fabric.Home.Client().CoreV1().Nodes().Get(ctx, node, metav1.GetOptions{})
			if err != nil {
				return err
			}
			id := object.Labels[keys.Cluster]
			if (in == home) != (id == "") || (in == west) != (id == string(west)) {
				return fmt.Errorf("pod %s runs on node %s, which is not one of %s", name, node, in)
			}
		}
		return nil
	}
}

// waits checks that a pod has no node, and that the scheduler says why: each of the
// reasons is part of what it says.
func (s *story) waits(namespace, name string, reasons ...string) probe {
	return func(ctx context.Context) error {
		pod, err := s.getPod(ctx, namespace, name)
		if err != nil {
			return err
		}
		scheduled := conditionOf(pod, corev1.PodScheduled)
		if pod.Spec.NodeName != "" || pod.Status.Phase != corev1.PodPending || scheduled.Reason != corev1.PodReasonUnschedulable {
			return fmt.Errorf("pod %s is %s on node %q: %s", name, pod.Status.Phase, pod.Spec.NodeName, scheduled.Message)
		}
		for _, reason := range reasons {
			if !strings.Contains(scheduled.Message, reason) {
				return fmt.Errorf("pod %s waits, but not because of %q: %s", name, reason, scheduled.Message)
			}
		}
		return nil
	}
}

// noPods checks that namespace shop of a cluster has no pod with a label.
func (s *story) noPods(in where, selector string) probe {
	return func(ctx context.Context) error {
		list, err := s.cluster(in).Client().CoreV1().Pods("shop").List(ctx, metav1.ListOptions{LabelSelector: selector})
		if err != nil {
			return err
		}
		return counted("pods", len(list.Items), 0)
	}
}

// all checks several probes.
func all(probes ...probe) probe {
	return func(ctx context.Context) error {
		for _, p := range probes {
			if err := p(ctx); err != nil {
				return err
			}
		}
		return nil
	}
}

// Columns that show pods: where they are, and why they wait.
const (
	podColumns  = "custom-columns=POD:.metadata.name,PHASE:.status.phase,NODE:.spec.nodeName"
	waitColumns = `custom-columns=POD:.metadata.name,PHASE:.status.phase,WHY:.status.conditions[?(@.type=="PodScheduled")].message`
)

const affinityReason = "PersistentVolume's node affinity"

// follow deletes pods, which come back where their volumes are.
func (s *story) follow() step {
	return step{
		title: "Pods follow their volumes",
		words: "All four pods are deleted. The StatefulSet makes them anew, and each comes back where its volume is.",
		acts: func() []act {
			return []act{
				// kubectl before 1.36 may wait for ever for the end of a pod that is there anew meanwhile, under its name.
				s.kubectl(home, "delete", "pod", "-n", "shop", "-l", "app=db", "--wait=false"),
				s.until("each pod runs again on the node of its volume, with the same volume",
					s.unchanged(append(append([]*volume{}, s.homes...), s.wests...)...)),
				s.kubectl(home, "get", "pods", "-n", "shop", "-o", podColumns),
			}
		},
	}
}

// wait cordons nodes: pods whose volumes are there wait.
func (s *story) wait() step {
	return step{
		title: "Where the volume is, there is no room: the pod waits, and never goes elsewhere",
		words: "The nodes of one cluster are cordoned and a pod of each cluster is deleted.",
		acts: func() []act {
			here, there := s.homes[0], s.wests[0]
			return []act{
				s.kubectl(home, "cordon", "home-1", "home-2"),
				s.kubectl(home, "delete", "pod", here.pod, there.pod, "-n", "shop", "--wait=false"),
				s.until(there.pod+" is back in west, where its volume is", s.unchanged(there)),
				s.until(here.pod+", whose volume is at home, waits; the scheduler names the volume's node affinity",
					s.waits("shop", here.pod, affinityReason)),
				s.kubectl(home, "get", "pod", here.pod, "-n", "shop", "-o", waitColumns),
				s.throughout(here.pod+" stays Pending", s.waits("shop", here.pod)),
				s.kubectl(home, "uncordon", "home-1", "home-2"),
				s.until(here.pod+" is back on "+here.node+", with the same volume", s.unchanged(here)),
				s.say("Now the other way round:"),
				s.kubectl(home, "cordon", "west"),
				s.kubectl(home, "delete", "pod", here.pod, there.pod, "-n", "shop", "--wait=false"),
				s.until(here.pod+" is back on "+here.node, s.unchanged(here)),
				s.until(there.pod+", whose volume is in west, waits; the scheduler names the volume's node affinity",
					s.waits("shop", there.pod, affinityReason)),
				s.kubectl(home, "get", "pod", there.pod, "-n", "shop", "-o", waitColumns),
				s.throughout(there.pod+" stays Pending", s.waits("shop", there.pod)),
				s.kubectl(home, "uncordon", "west"),
				s.until(there.pod+" is back in west, with the same volume", s.unchanged(there)),
			}
		},
	}
}

// offload shows what the extender refuses that no node affinity can say.
func (s *story) offload() step {
	return step{
		title: "A namespace stays at home until its label lets it out",
		words: "Namespace office has no label lodestone.dev/offload. With home's nodes cordoned only west has room; the extender tells the " +
			"scheduler why it must not be used.",
		acts: func() []act {
			return []act{
				s.kubectl(home, "cordon", "home-1", "home-2"),
				s.apply(manifest("office")),
				s.until("pod notes waits, for the reason that the extender gives",
					s.waits("office", "notes", "label the pod's namespace lodestone.dev/offload=enabled")),
				s.kubectl(home, "get", "pod", "notes", "-n", "office", "-o", waitColumns),
				s.kubectl(home, "label", "namespace", "office", "lodestone.dev/offload=enabled"),
				s.until("pod notes runs in west, with its volume there", func(ctx context.Context) error {
					if err := s.runIn(west, "office", "notes")(ctx); err != nil {
						return err
					}
					v, err := s.find(ctx, "office", "notes", "notes")
					if err != nil {
						return err
					}
					return v.checkKind()
				}),
				s.kubectl(home, "uncordon", "home-1", "home-2"),
			}
		},
	}
}

// scale takes all replicas away and brings them back.
func (s *story) scale() step {
	return step{
		title: "Scale to 0 and back",
		words: "Without pods the claims keep their volumes; the pods come back to them.",
		acts: func() []act {
			return []act{
				s.kubectl(home, "scale", "statefulset/db", "-n", "shop", "--replicas=0"),
				s.until("no replica is left, in home or in west", all(s.noPods(home, "app=db"), s.noPods(west, "app=db"))),
				s.kubectl(home, "scale", "statefulset/db", "-n", "shop", "--replicas=4"),
				s.until("each replica runs again on the node of its volume, with the same volume",
					s.unchanged(append(append([]*volume{}, s.homes...), s.wests...)...)),
				s.kubectl(home, "get", "pods", "-n", "shop", "-o", podColumns),
			}
		},
	}
}
