// Package testbed runs real Kubernetes control planes as processes on loopback
// and gives tests and the demo what they need to work with them.
//
// A cluster is etcd, kube-apiserver, kube-controller-manager and kube-scheduler,
// all from one multi-call program that is built once from Go modules and cached
// outside the source tree (see [Binary]). There is no kubelet: nodes and pods are
// played by package hollow, the real storage class by package instant.
//
// Nothing outlives the process that started it: clusters stop with [Cluster.Stop],
// with the context given to [Start], and, because the kernel sends their
// processes a signal, also when that process is killed. Logs are removed with
// the clusters, unless something failed; then a line on standard error says
// where they are.
//
// Tests that need clusters share one set for each package:
//
//	func TestMain(m *testing.M) {
//		testbed.Main(m, func(ctx context.Context) (err error) {
//			clusters, err = testbed.Start(ctx, testbed.Config{Name: "home"}, testbed.Config{Name: "west"})
//			return err
//		})
//	}
//
//	func TestSomething(t *testing.T) {
//		namespace := testbed.Namespace(t, clusters...) // skips unless LODESTONE_TESTBED=1
//	}
package testbed
