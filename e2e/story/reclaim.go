package story

import (
	"context"
	"fmt"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

// remove deletes claims; what is behind them goes in its cluster.
func (s *story) remove() step {
	return step{
		title: "A claim is deleted: its backing claim and its real volume go, in its cluster",
		words: "The claims of two replicas are deleted with their pods, one of home and one of west. The StatefulSet makes new ones, which get new volumes.",
		acts: func() []act {
			here, there := s.homes[1], s.wests[1]
			return []act{
				s.kubectl(home, "delete", "pvc", here.claim.Name, there.claim.Name, "-n", "shop", "--wait=false"),
				s.kubectl(home, "delete", "pod", here.pod, there.pod, "-n", "shop"),
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
				s.kubectl(home, "get", "pvc", "-n", "shop", "-o", "custom-columns=CLAIM:.metadata.name,STATUS:.status.phase,VOLUME:.spec.volumeName,CREATED:.metadata.creationTimestamp"),
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
				s.kubectl(home, "get", "pvc", "-n", fabric.Storage, "-o", "custom-columns=TWIN:.metadata.name,STATUS:.status.phase,OF:.metadata.annotations.lodestone\\.dev/claim"),
				s.kubectl(west, "get", "pvc", "-n", "shop", "-o", "custom-columns=SHADOW:.metadata.name,STATUS:.status.phase,OF:.metadata.annotations.lodestone\\.dev/claim"),
			}
		},
	}
}
