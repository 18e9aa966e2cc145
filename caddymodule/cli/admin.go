package cli

import (
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"net/http"
	"os"

	"github.com/caddyserver/caddy/v2"
	caddycmd "github.com/caddyserver/caddy/v2/cmd"
	"github.com/spf13/cobra"
)

// maxAdminResponse is the maximum size of the admin API's response in bytes. That of drift is the largest.
const maxAdminResponse = 64 << 20

// packageSocket is the admin API of a gateway that the deb or rpm has installed.
const packageSocket = "/run/gatehouse/admin.sock"

// adminAPI holds the flags of commands that ask the running gateway.
type adminAPI struct{ address, config, adapter string }

func (a *adminAPI) addFlags(cmd *cobra.Command) {
	f := cmd.Flags()
	f.StringVar(&a.address, "address", "", "address of the running gateway's admin API (default: that of --config; else unix/"+packageSocket+" if it exists, or localhost:2019)")
	f.StringVarP(&a.config, "config", "c", "", "configuration file, for the address of the admin API")
	f.StringVarP(&a.adapter, "adapter", "a", "", "name of the config adapter to use")
}

// get decodes the response of the admin API.
func (a *adminAPI) get(path string, response any) error {
	address := a.address
	if _, err := os.Stat(packageSocket); address == "" && a.config == "" && !errors.Is(err, fs.ErrNotExist) { // nor if only root may look
		address = "unix/" + packageSocket
	}
	var raw []byte
	if a.address == "" && a.config != "" {
		var cfg caddy.Config
		raw, _, _, _ = caddycmd.LoadConfig(a.config, a.adapter) // an error occurs again below
		if json.Unmarshal(raw, &cfg) == nil && cfg.Admin != nil && cfg.Admin.Disabled {
			return fmt.Errorf("asking the gateway: %s has admin off", a.config)
		}
	}
	address, err := caddycmd.DetermineAdminAPIAddress(address, raw, a.config, a.adapter)
	if err != nil {
		return fmt.Errorf("finding the admin API: %w", err)
	}
	resp, err := caddycmd.AdminAPIRequest(address, http.MethodGet, path, nil, nil)
	if err != nil {
		return fmt.Errorf("asking the gateway: %w", adminError(err))
	}
	defer func() { _ = resp.Body.Close() }()
	body, err := io.ReadAll(io.LimitReader(resp.Body, maxAdminResponse))
	if err == nil {
		err = json.Unmarshal(body, response)
	}
	if err != nil {
		return fmt.Errorf("asking the gateway: %w", err)
	}
	return nil
}
