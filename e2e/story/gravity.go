package story

import (
	"context"
)

const affinityReason = "PersistentVolume's node affinity"

// follow deletes pods, which come back where their volumes are.
func (s *story) follow() step {
	return step{
		title: "Pods follow their volumes",
		words: "All four pods are deleted. The StatefulSet makes them anew, and each comes back where its volume is.",
		acts: func() []act {
			return []act{
				s.kubectl(home, "delete", "pod", "-n", "shop", "-l", "app=db"),
				s.until("each pod runs again on the node of its volume, with the same volume", s.unchanged(append(append([]*volume{}, s.homes...), s.wests...)...)),
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
				s.kubectl(home, "delete", "pod", here.pod, there.pod, "-n", "shop"),
				s.until(there.pod+" is back in west, where its volume is", s.unchanged(there)),
				s.until(here.pod+", whose volume is at home, waits; the scheduler names the volume's node affinity", s.waits("shop", here.pod, affinityReason)),
				s.kubectl(home, "get", "pod", here.pod, "-n", "shop", "-o", waitColumns),
				s.throughout(here.pod+" stays Pending", s.waits("shop", here.pod)),
				s.kubectl(home, "uncordon", "home-1", "home-2"),
				s.until(here.pod+" is back on "+here.node+", with the same volume", s.unchanged(here)),
				s.say("Now the other way round:"),
				s.kubectl(home, "cordon", "west"),
				s.kubectl(home, "delete", "pod", here.pod, there.pod, "-n", "shop"),
				s.until(here.pod+" is back on "+here.node, s.unchanged(here)),
				s.until(there.pod+", whose volume is in west, waits; the scheduler names the volume's node affinity", s.waits("shop", there.pod, affinityReason)),
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
		words: "Namespace office has no label lodestone.dev/offload. With home's nodes cordoned only west has room; the extender tells the scheduler why it must not be used.",
		acts: func() []act {
			return []act{
				s.kubectl(home, "cordon", "home-1", "home-2"),
				s.apply(manifest("office")),
				s.until("pod notes waits, for the reason that the extender gives", s.waits("office", "notes", "label the pod's namespace lodestone.dev/offload=enabled")),
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
				s.until("each replica runs again on the node of its volume, with the same volume", s.unchanged(append(append([]*volume{}, s.homes...), s.wests...)...)),
				s.kubectl(home, "get", "pods", "-n", "shop", "-o", podColumns),
			}
		},
	}
}
