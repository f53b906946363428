package story

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	corev1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
	"github.com/lodestone-storage/lodestone/e2e/fakeprovisioner"
	"github.com/lodestone-storage/lodestone/e2e/testbed"
	"github.com/lodestone-storage/lodestone/pkg/keys"
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
				s.kubectl(home, "get", "remotecluster", "west", "-o",
					`custom-columns=NAME:.metadata.name,READY:.status.conditions[?(@.type=="Ready")].status,`+
						`WHY:.status.conditions[?(@.type=="Ready")].message`),
				s.say("New pods with new claims, which would rather run in west, go home; one that must run in west waits:"),
				s.apply(manifest("web")),
				s.apply(manifest("late")),
				s.until("the new pods run at home, with their volumes there",
					all(s.runIn(home, "shop", "web-0", "web-1"), s.allIn(home, "web-0", "web-1"))),
				s.until("pod late waits, for the reason that the extender gives",
					s.waits("shop", "late", "remote cluster that is not Ready: see kubectl get remoteclusters")),
				s.kubectl(home, "get", "pods", "-n", "shop", "-l", "app=web", "-o", podColumns),
				s.kubectl(home, "get", "pod", "late", "-n", "shop", "-o", waitColumns),
				s.say("Nobody can know whether a pod in west still runs. Even a forced deletion does not make the StatefulSet start a " +
					"second copy of it:"),
				s.kubectl(home, "delete", "pod", s.wests[0].pod, "-n", "shop", "--force", "--grace-period=0", "--wait=false"),
				s.throughout(s.wests[0].pod+" stays, and no other pod of its name is made", s.terminating(s.wests[0].pod)),
				s.say("A claim whose data is in west is deleted:"),
				s.kubectl(home, "delete", "pvc", "report", "-n", "shop"),
				s.until("the deletion waits for west, and an event on the volume says so", func(ctx context.Context) error {
					return s.deletionWaits(ctx)
				}),
				s.shown(func() []string {
					return []string{"get", "events", "-n", "default", "--field-selector", "involvedObject.name=" + s.doomed.virtual.Name, "-o",
						"custom-columns=TYPE:.type,REASON:.reason,MESSAGE:.message"}
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

const batchSize = 6

// takeOver kills the leading provisioner while it works.
func (s *story) takeOver() step {
	return step{
		title: "The leading provisioner is killed in the middle of its work",
		words: "Home's real class is made to take 2 s for a volume. Six new claims get their twins; before these are bound the leader is " +
			"killed with kill -9. West is still away.",
		acts: func() []act {
			var killed *testbed.Program
			var pods []string
			for i := range batchSize {
				pods = append(pods, "batch-"+strconv.Itoa(i))
			}
			return []act{
				func(context.Context) error {
					s.fabric.HomeStorage.SetClass(fabric.HomeWait, fakeprovisioner.Behavior{Delay: 2 * time.Second})
					return nil
				},
				s.apply(manifest("batch")),
				s.until("the six claims have their twins, none is bound", s.batchTwins(corev1.ClaimPending)),
				func(ctx context.Context) (err error) {
					if killed, err = s.leader(); err != nil {
						return err
					}
					return s.do(fmt.Sprintf("$ kill -9 %d   # %s", killed.Pid(), killed.Name()), func(context.Context) error {
						killed.Kill()
						s.provisioners = slices.DeleteFunc(s.provisioners, func(p *testbed.Program) bool { return p == killed })
						return nil
					})(ctx)
				},
				s.until("the other provisioner leads", func(context.Context) error {
					leader, err := s.leader()
					if err == nil {
						s.console.note(fmt.Sprintf("%s leads (process %d).", leader.Name(), leader.Pid()))
					}
					return err
				}),
				s.until("the six pods run at home", s.runIn(home, "shop", pods...)),
				s.until("each claim has the one twin that it had, now bound, and no second volume was made",
					all(s.batchTwins(corev1.ClaimBound), s.allIn(home, pods...), s.balanced(home))),
				s.kubectl(home, "get", "lease", "lodestone-provisioner", "-n", fabric.System, "-o",
					"custom-columns=LEASE:.metadata.name,HOLDER:.spec.holderIdentity,TRANSITIONS:.spec.leaseTransitions"),
				func(context.Context) error {
					s.fabric.HomeStorage.ResetClass(fabric.HomeWait)
					return nil
				},
				s.say("A third replica takes the place of the killed one, as its Deployment would have it."),
				s.addProvisioner("provisioner-c"),
			}
		},
	}
}

func (s *story) batchTwins(phase corev1.PersistentVolumeClaimPhase) probe {
	return func(ctx context.Context) error {
		client := s.fabric.Home.Client().CoreV1()
		for i := range batchSize {
			claim, err := client.PersistentVolumeClaims("shop").Get(ctx, claimOf("batch-"+strconv.Itoa(i)), metav1.GetOptions{})
			if err != nil {
				return err
			}
			twins, err := client.PersistentVolumeClaims("").List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID + "=" + string(claim.UID)})
			if err != nil {
				return err
			}
			if err := counted("twins of claim "+claim.Name, len(twins.Items), 1); err != nil {
				return err
			}
			if have := twins.Items[0].Status.Phase; have != phase {
				return fmt.Errorf("the twin of claim %s is %s", claim.Name, have)
			}
		}
		return nil
	}
}

// gone checks that nothing is left of volumes, in any cluster.
func (s *story) gone(volumes ...*volume) probe {
	return func(ctx context.Context) error {
		for _, was := range volumes {
			cluster := s.cluster(was.in).Client().CoreV1()
			_, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().Get(ctx, was.virtual.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("virtual volume %s is still there (%w)", was.virtual.Name, orExists(err))
			}
			claim, err := cluster.PersistentVolumeClaims(was.backing.Namespace).Get(ctx, was.backing.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) && (err != nil || claim.UID == was.backing.UID) {
				return fmt.Errorf("backing claim %s in %s is still there (%w)", was.backing.Name, was.in, orExists(err))
			}
			_, err = cluster.PersistentVolumes().Get(ctx, was.real.Name, metav1.GetOptions{})
			if !apierrors.IsNotFound(err) {
				return fmt.Errorf("real volume %s in %s is still there (%w)", was.real.Name, was.in, orExists(err))
			}
			if s.storage(was.in).Exists(was.real.Spec.CSI.VolumeHandle) {
				return fmt.Errorf("the storage of %s still has volume %s", was.in, was.real.Spec.CSI.VolumeHandle)
			}
		}
		return nil
	}
}

var errExists = errors.New("it exists")

// orExists is why something is not known to be gone.
func orExists(err error) error {
	if err == nil {
		return errExists
	}
	return err
}

// kept checks that released volumes and all behind them are still there.
func (s *story) kept(volumes ...*volume) probe {
	return func(ctx context.Context) error {
		for _, was := range volumes {
			virtual, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().Get(ctx, was.virtual.Name, metav1.GetOptions{})
			if err != nil {
				return err
			}
			if virtual.Status.Phase != corev1.VolumeReleased {
				return fmt.Errorf("virtual volume %s is %s", virtual.Name, virtual.Status.Phase)
			}
			claim, err := s.cluster(was.in).Client().CoreV1().PersistentVolumeClaims(was.backing.Namespace).Get(ctx, was.backing.Name,
				metav1.GetOptions{})
			switch {
			case err != nil:
				return err
			case claim.UID != was.backing.UID || claim.Status.Phase != corev1.ClaimBound || claim.DeletionTimestamp != nil:
				return fmt.Errorf("backing claim %s in %s is not kept as it was", claim.Name, was.in)
			case !s.storage(was.in).Exists(was.real.Spec.CSI.VolumeHandle):
				return fmt.Errorf("the storage of %s has lost volume %s", was.in, was.real.Spec.CSI.VolumeHandle)
			}
		}
		return nil
	}
}

// balanced checks that a cluster has a backing claim and a real volume for each
// virtual volume whose data it holds, and no more.
func (s *story) balanced(in where) probe {
	return func(ctx context.Context) error {
		volumes, err := s.fabric.Home.Client().CoreV1().PersistentVolumes().List(ctx,
			metav1.ListOptions{LabelSelector: keys.Cluster + "=" + string(in)})
		if err != nil {
			return err
		}
		claims, err := s.cluster(in).Client().CoreV1().PersistentVolumeClaims("").List(ctx, metav1.ListOptions{LabelSelector: keys.ClaimUID})
		if err != nil {
			return err
		}
		if err := counted("backing claims in "+string(in), len(claims.Items), len(volumes.Items)); err != nil {
			return err
		}
		return counted("real volumes in "+string(in), len(s.storage(in).Volumes()), len(volumes.Items))
	}
}

// remove deletes claims; what is behind them goes in its cluster.
func (s *story) remove() step {
	return step{
		title: "A claim is deleted: its backing claim and its real volume go, in its cluster",
		words: "The claims of two replicas are deleted with their pods, one of home and one of west. The StatefulSet makes new ones, which " +
			"get new volumes.",
		acts: func() []act {
			here, there := s.homes[1], s.wests[1]
			return []act{
				s.kubectl(home, "delete", "pvc", here.claim.Name, there.claim.Name, "-n", "shop", "--wait=false"),
				s.kubectl(home, "delete", "pod", here.pod, there.pod, "-n", "shop", "--wait=false"),
				s.until("twin "+here.backing.Name+" and its real volume at home are gone", s.gone(here)),
				s.until("shadow "+there.backing.Name+" and its real volume in west are gone", s.gone(there)),
				s.until("the two replicas run again, with new volumes; the other two were not touched", func(ctx context.Context) error {
					if err := s.gather(ctx); err != nil {
						return err
					}
					for _, v := range append(append([]*volume{}, s.homes...), s.wests...) {
						if v.claim.UID == here.claim.UID || v.claim.UID == there.claim.UID {
							return fmt.Errorf("claim %s is still the old one", v.claim.Name)
						}
					}
					return nil
				}),
				s.kubectl(home, "get", "pvc", "-n", "shop", "-o",
					"custom-columns=CLAIM:.metadata.name,STATUS:.status.phase,VOLUME:.spec.volumeName,CREATED:.metadata.creationTimestamp"),
			}
		},
	}
}

// retain deletes claims of a class that keeps the data.
func (s *story) retain() step {
	return step{
		title: "With reclaim policy Retain the data stays",
		words: "A second virtual class, lodestone-retain. A claim of it at home and one in west are deleted with their pods.",
		acts: func() []act {
			return []act{
				s.apply("deploy/examples/storage-classes.yaml"),
				s.apply(manifest("kept")),
				s.until("both pods run, one at home and one in west, with their volumes there", func(ctx context.Context) error {
					s.retains = nil
					for name, in := range map[string]where{"kept-home": home, "kept-west": west} {
						v, err := s.find(ctx, "shop", name, name)
						if err != nil {
							return err
						}
						if v.in != in {
							return fmt.Errorf("the volume of claim %s is in %s", name, v.in)
						}
						s.retains = append(s.retains, v)
					}
					return nil
				}),
				s.kubectl(home, "delete", "pod,pvc", "kept-home", "kept-west", "-n", "shop"),
				func(ctx context.Context) error {
					return s.until("the volumes are Released; their backing claims and real volumes stay", s.kept(s.retains...))(ctx)
				},
				func(ctx context.Context) error {
					return s.throughout("and go on to stay", s.kept(s.retains...))(ctx)
				},
				s.kubectl(home, "get", "pv", "-l", "lodestone.dev/cluster", "--sort-by=.spec.claimRef.name", "-o", volumeColumns),
				s.kubectl(home, "get", "pvc", "-n", fabric.Storage, "-o",
					"custom-columns=TWIN:.metadata.name,STATUS:.status.phase,OF:.metadata.annotations.lodestone\\.dev/claim"),
				s.kubectl(west, "get", "pvc", "-n", "shop", "-o",
					"custom-columns=SHADOW:.metadata.name,STATUS:.status.phase,OF:.metadata.annotations.lodestone\\.dev/claim"),
			}
		},
	}
}
