package story

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"

	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/meta"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"

	"github.com/lodestone-storage/lodestone/pkg/api/v1alpha1"
	"github.com/lodestone-storage/lodestone/pkg/keys"
)

// peer makes west known to home.
func (s *story) peer() step {
	return step{
		title: "Make west known to home",
		words: "One command, with the rights of somebody who administers both clusters. In west it says what home may do there (a HomeCluster); at home it makes " +
			"the Secret with home's identity in west, and the RemoteCluster. A virtual node then stands for west, and a namespace that is open to other clusters is made there.",
		acts: func() []act {
			return []act{
				func(context.Context) (err error) {
					s.contexts, err = s.fabric.Contexts()
					return err
				},
				s.plugin("peer", "--remote-context", "west"),
				s.apply(manifest("namespaces")),
				s.until("RemoteCluster west is Ready", s.ready(metav1.ConditionTrue)),
				s.until("the virtual node west is Ready", s.nodeReady(corev1.ConditionTrue)),
				s.until("namespace shop, which is open to other clusters, is made in west", s.namespaceIn("shop")),
				s.kubectl(west, "get", "homeclusters,namespacerequests", "-A"),
				func(ctx context.Context) error {
					id, err := s.fabric.HomeID(ctx)
					if err != nil {
						return err
					}
					identity := keys.TenantPrefix + id + ":" + keys.HomeAccount
					if err := s.until("home may make claims in namespace shop of west", s.allowed("shop", identity))(ctx); err != nil {
						return err
					}
					return s.may(west, "and in no other", "no", "create", "default", identity)(ctx)
				},
				s.plugin("status"),
				s.kubectl(home, "get", "nodes", "-L", "lodestone.dev/cluster,topology.kubernetes.io/zone"),
			}
		},
	}
}

// plugin runs a command of the kubectl plugin with both clusters' contexts, and
// shows it as a user would type it, with its output.
func (s *story) plugin(args ...string) act {
	return func(ctx context.Context) error {
		s.console.command(string(home), s.typed(append([]string{"lodestone"}, args...)))
		cmd := exec.CommandContext(ctx, program("kubectl-lodestone"), args...)
		cmd.Env = append(os.Environ(), "KUBECONFIG="+s.contexts, "KUBECACHEDIR="+filepath.Join(filepath.Dir(s.contexts), "cache"))
		output, err := cmd.CombinedOutput()
		s.console.output(string(output))
		if err != nil {
			return fmt.Errorf("kubectl lodestone %s: %w\n%s", strings.Join(args, " "), err, output)
		}
		return nil
	}
}

// allowed checks that an identity may make claims in a namespace of west.
func (s *story) allowed(namespace, account string) probe {
	return func(ctx context.Context) error {
		_, err := s.fabric.West.Kubectl(ctx, "", "auth", "can-i", "create", "persistentvolumeclaims", "-n", namespace, "--as=system:serviceaccount:"+account)
		return err
	}
}

// namespaceIn checks that a namespace of west was made for home.
func (s *story) namespaceIn(name string) probe {
	return func(ctx context.Context) error {
		namespace, err := s.fabric.West.Client().CoreV1().Namespaces().Get(ctx, name, metav1.GetOptions{})
		if err == nil && namespace.Labels[keys.HomeID] == "" {
			err = fmt.Errorf("namespace %s of west is not home's", name)
		}
		return err
	}
}

func manifest(name string) string { return "e2e/story/manifests/" + name + ".yaml" }

// ready checks the condition Ready of RemoteCluster west.
func (s *story) ready(want metav1.ConditionStatus) probe {
	return func(ctx context.Context) error {
		remote, err := s.fabric.Remotes.Get(ctx, string(west), metav1.GetOptions{})
		if err != nil {
			return err
		}
		have := meta.FindStatusCondition(remote.Status.Conditions, v1alpha1.Ready)
		if have == nil || have.Status != want {
			return fmt.Errorf("its condition Ready is %+v", have)
		}
		return nil
	}
}

// nodeReady checks the condition Ready of the virtual node west.
func (s *story) nodeReady(want corev1.ConditionStatus) probe {
	return func(ctx context.Context) error {
		node, err := s.fabric.Home.Client().CoreV1().Nodes().Get(ctx, string(west), metav1.GetOptions{})
		if err != nil {
			return err
		}
		for _, condition := range node.Status.Conditions {
			if condition.Type == corev1.NodeReady && condition.Status == want {
				return nil
			}
		}
		return fmt.Errorf("its condition Ready is not %s", want)
	}
}
