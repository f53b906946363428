package story

import (
	"context"
	"fmt"

	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/e2e/fabric"
)

var replicas = []string{"db-0", "db-1", "db-2", "db-3"}

func claimOf(replica string) string { return "data-" + replica }

// spread makes claims of the virtual class for pods of both clusters.
func (s *story) spread() step {
	return step{
		title: "A StatefulSet of four replicas, spread over both clusters, a claim each",
		words: "The class lodestone waits for the pod of a claim. kube-scheduler spreads the pods over the zones home and west; where a pod lands, there its claim gets its volume.",
		acts: func() []act {
			return []act{
				s.apply(manifest("db")),
				s.until("all four pods run", s.run("shop", replicas...)),
				s.until("two claims have their volumes at home, two in west", s.gather),
				s.kubectl(home, "get", "pods", "-n", "shop", "-o", podColumns),
				s.kubectl(home, "get", "pvc", "-n", "shop", "-o", "custom-columns=CLAIM:.metadata.name,STATUS:.status.phase,CLASS:.spec.storageClassName,VOLUME:.spec.volumeName"),
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

const volumeColumns = `custom-columns=CLAIM:.spec.claimRef.name,STATUS:.status.phase,CLUSTER:.metadata.labels.lodestone\.dev/cluster,DRIVER:.spec.csi.driver,BACKING CLAIM:.metadata.annotations.lodestone\.dev/backing`

// behind shows what is behind the claims.
func (s *story) behind() step {
	return step{
		title: "What is behind the claims: twins at home, shadows in west",
		words: "Behind a claim whose pod is at home is a real claim at home, its twin; behind the others a real claim in west, their shadow, of the same name. " +
			"A virtual volume at home is mounted like the real one. One in west has a driver that no kubelet has, so it can never be mounted at home by mistake.",
		acts: func() []act {
			volumes := append(append([]*volume{}, s.homes...), s.wests...)
			return []act{
				s.kubectl(home, "get", "pv", "-l", "lodestone.dev/cluster", "--sort-by=.spec.claimRef.name", "-o", volumeColumns),
				s.kubectl(home, "get", "pvc", "-n", fabric.Storage, "-o", "custom-columns=TWIN:.metadata.name,STATUS:.status.phase,CLASS:.spec.storageClassName,OF:.metadata.annotations.lodestone\\.dev/claim"),
				s.kubectl(west, "get", "pvc", "-n", "shop", "-o", "custom-columns=SHADOW:.metadata.name,STATUS:.status.phase,CLASS:.spec.storageClassName,OF:.metadata.annotations.lodestone\\.dev/claim"),
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
				s.kubectl(home, "get", "events", "-n", "shop", "--field-selector", "involvedObject.kind=PersistentVolumeClaim,involvedObject.name="+s.wests[0].claim.Name,
					"-o", "custom-columns=REASON:.reason,FROM:.source.component,MESSAGE:.message"),
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
