package driver

import (
	"context"
	"fmt"
	"os"

	registration "k8s.io/kubelet/pkg/apis/pluginregistration/v1"
)

// registrar tells the kubelet of the driver, which finds its socket in the directory
// plugins_registry. It takes the place of node-driver-registrar.
type registrar struct {
	registration.UnimplementedRegistrationServer
	options Options
}

func (r *registrar) GetInfo(context.Context, *registration.InfoRequest) (*registration.PluginInfo, error) {
	return &registration.PluginInfo{
		Type: registration.CSIPlugin, Name: r.options.Name, Endpoint: r.options.Socket, SupportedVersions: []string{"1.0.0"},
	}, nil
}

// NotifyRegistrationStatus says in the log what the kubelet thinks of the driver.
func (r *registrar) NotifyRegistrationStatus(_ context.Context, status *registration.RegistrationStatus) (*registration.RegistrationStatusResponse, error) {
	if status.PluginRegistered {
		fmt.Fprintln(os.Stderr, "disk: the kubelet has registered the driver")
	} else {
		fmt.Fprintln(os.Stderr, "disk: the kubelet refuses the driver:", status.Error)
	}
	return &registration.RegistrationStatusResponse{}, nil
}
