package story

import (
	"context"
	"fmt"
	"strings"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// outage stops west's API server.
func (s *story) outage() step {
	return step{
		title: "West is away",
		words: "Before that, a claim gets its volume in west and its pod is deleted. Then west cannot be reached.",
		acts: func() []act {
			return []act{
				s.apply(manifest("report")),
				s.until("pod report runs in west, with its volume there", func(ctx context.Context) (err error) {
					s.doomed, err = s.find(ctx, "shop", "report", "report")
					return err
				}),
				s.kubectl(home, "delete", "pod", "report", "-n", "shop"),
				s.do("West's API server is stopped now, and the remote agent with it.", func(ctx context.Context) error {
					s.agent.Kill()
					return s.fabric.West.StopAPIServer(ctx)
				}),
				s.until("RemoteCluster west says so: it is not Ready", s.ready(metav1.ConditionFalse)),
				s.until("and so does its virtual node", s.nodeReady(corev1.ConditionFalse)),
				s.kubectl(home, "get", "remotecluster", "west", "-o", `custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status,WHY:.status.conditions[?(@.type=="Ready")].message`),
				s.say("New pods with new claims, which would rather run in west, go home; one that must run in west waits:"),
				s.apply(manifest("web")),
				s.apply(manifest("late")),
				s.until("the new pods run at home, with their volumes there", all(s.runIn(home, "shop", "web-0", "web-1"), s.allIn(home, "web-0", "web-1"))),
				s.until("pod late waits, for the reason that the extender gives", s.waits("shop", "late", "remote cluster that is not Ready: see kubectl get remoteclusters")),
				s.kubectl(home, "get", "pods", "-n", "shop", "-l", "app=web", "-o", podColumns),
				s.kubectl(home, "get", "pod", "late", "-n", "shop", "-o", waitColumns),
				s.say("Nobody can know whether a pod in west still runs. Even a forced deletion does not make the StatefulSet start a second copy of it:"),
				s.kubectl(home, "delete", "pod", s.wests[0].pod, "-n", "shop", "--force", "--grace-period=0", "--wait=false"),
				s.throughout(s.wests[0].pod+" stays, and no other pod of its name is made", s.terminating(s.wests[0].pod)),
				s.say("A claim whose data is in west is deleted:"),
				s.kubectl(home, "delete", "pvc", "report", "-n", "shop"),
				s.until("the deletion waits for west, and an event on the volume says so", func(ctx context.Context) error { return s.deletionWaits(ctx) }),
				s.shown(func() []string {
					return []string{"get", "events", "-n", "default", "--field-selector", "involvedObject.name=" + s.doomed.virtual.Name, "-o", "custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message"}
				}),
				s.throughout("nothing of west's volumes is touched", all(s.untouched, s.deletionWaits)),
				s.kubectl(home, "get", "pv", "-l", "lodestone.dev/cluster=west", "--sort-by=.spec.claimRef.name", "-o", volumeColumns),
			}
		},
	}
}

// shown is kubectl with arguments that are known only when it runs.
func (s *story) shown(args func() []string) act {
	return func(ctx context.Context) error { return s.kubectl(home, args()...)(ctx) }
}

// allIn checks that the claims of replicas have their volumes in one cluster.
func (s *story) allIn(in where, replicas ...string) probe {
	return func(ctx context.Context) error {
		for _, replica := range replicas {
			v, err := s.find(ctx, "shop", claimOf(replica), replica)
			if err != nil {
				return err
			}
			if v.in != in {
				return fmt.Errorf("the volume of claim %s is in %s", v.claim.Name, v.in)
			}
		}
		return nil
	}
}

// deletionWaits checks that the released volume in west is still there with all
// behind it, and that an event says what its deletion waits for.
func (s *story) deletionWaits(ctx context.Context) error {
	virtual, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().Get(ctx, s.doomed.virtual.Name, metav1.GetOptions{})
	if err != nil {
		return err
	}
	if virtual.Status.Phase != corev1.VolumeReleased {
		return fmt.Errorf("volume %s is %s", virtual.Name, virtual.Status.Phase)
	}
	if !s.storage(west).Exists(s.doomed.real.Spec.CSI.VolumeHandle) {
		return fmt.Errorf("the storage of west has lost volume %s", s.doomed.real.Spec.CSI.VolumeHandle)
	}
	event, err := s.event(ctx, metav1.NamespaceDefault, "PersistentVolume", virtual.Name, "ClusterNotUsable")
	if err == nil && !strings.Contains(event.Message, "waiting for cluster west to delete the volume's data there") {
		err = fmt.Errorf("the event says: %s", event.Message)
	}
	return err
}

// untouched checks that the replicas' claims in west are as they were.
func (s *story) untouched(ctx context.Context) error {
	client := s.fabric.Home.Client().CoreV1()
	for _, was := range s.wests {
		claim, err := client.PersistentVolumeClaims("shop").Get(ctx, was.claim.Name, metav1.GetOptions{})
		if err != nil {
			return err
		}
		virtual, err := client.PersistentVolumes().Get(ctx, was.virtual.Name, metav1.GetOptions{})
		switch {
		case err != nil:
			return err
		case claim.UID != was.claim.UID || claim.Status.Phase != corev1.ClaimBound:
			return fmt.Errorf("claim %s is %s", claim.Name, claim.Status.Phase)
		case virtual.UID != was.virtual.UID || virtual.Status.Phase != corev1.VolumeBound:
			return fmt.Errorf("volume %s is %s", virtual.Name, virtual.Status.Phase)
		case !s.storage(west).Exists(was.real.Spec.CSI.VolumeHandle):
			return fmt.Errorf("the storage of west has lost volume %s", was.real.Spec.CSI.VolumeHandle)
		}
	}
	return nil
}

// terminating checks that a pod of west is being deleted and still there.
func (s *story) terminating(name string) probe {
	return func(ctx context.Context) error {
		pod, err := s.getPod(ctx, "shop", name)
		if err != nil {
			return err
		}
		if pod.DeletionTimestamp == nil {
			return fmt.Errorf("pod %s is not being deleted", name)
		}
		if pod.Spec.NodeName != string(west) {
			return fmt.Errorf("pod %s is on node %q", name, pod.Spec.NodeName)
		}
		return nil
	}
}

// comeBack starts west's API server again.
func (s *story) comeBack() step {
	return step{
		title: "West returns, and all settles",
		words: "Nobody has to do anything.",
		acts: func() []act {
			return []act{
				s.do("West's API server is started again.", func(ctx context.Context) error { return s.fabric.West.StartAPIServer(ctx) }),
				s.runAgent("remote-agent-b"),
				s.until("RemoteCluster west is Ready", s.ready(metav1.ConditionTrue)),
				s.until("the virtual node west is Ready", s.nodeReady(corev1.ConditionTrue)),
				s.until("the deletion that waited is completed: the claim in west and its real volume are gone", s.gone(s.doomed)),
				s.until("pod late, which waited, runs in west with its volume there", func(ctx context.Context) error {
					v, err := s.find(ctx, "shop", "late", "late")
					if err == nil && v.in != west {
						err = fmt.Errorf("the volume of claim late is in %s", v.in)
					}
					return err
				}),
				s.until("west's replicas are ready again, with the same volumes", s.unchanged(s.wests...)),
				s.until("home's replicas were not disturbed", s.unchanged(s.homes...)),
				s.kubectl(home, "get", "remoteclusters"),
				s.kubectl(home, "get", "pods", "-n", "shop", "-o", podColumns),
			}
		},
	}
}
