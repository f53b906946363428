//go:build deps

// Package deps holds requirements in go.mod while the programs are being built up.
package deps

import (
	_ "github.com/prometheus/client_golang/prometheus/promhttp"
	_ "github.com/prometheus/client_golang/prometheus/testutil"
	_ "github.com/stretchr/testify/require"
	_ "k8s.io/apimachinery/pkg/util/validation"
	_ "k8s.io/client-go/gentype"
	_ "k8s.io/client-go/kubernetes/fake"
	_ "k8s.io/client-go/tools/clientcmd"
	_ "k8s.io/client-go/tools/leaderelection"
	_ "k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/api/v1"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/legacyregistry"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-helpers/scheduling/corev1/nodeaffinity"
	_ "k8s.io/component-helpers/storage/volume"
	_ "k8s.io/kube-scheduler/config/v1"
	_ "k8s.io/kube-scheduler/extender/v1"
	_ "k8s.io/utils/ptr"
	_ "sigs.k8s.io/sig-storage-lib-external-provisioner/v10/controller"
	_ "sigs.k8s.io/yaml"
	_ "golang.org/x/sync/errgroup"
)
