"""fakebmc.py PORT FOLDER: pyghmi's BMC on loopback, whose machine is FOLDER/power.

USERNAME, PASSWORD, KG (hex, may be missing) and GUID are files in FOLDER. FOLDER/calls gets a
line for each change of power that was asked for."""
import os
import sys
import uuid

import pyghmi.ipmi.bmc as bmc

port, folder = int(sys.argv[1]), sys.argv[2]


def read(name):
    with open(os.path.join(folder, name)) as f:
        return f.read().strip()


class Machine(bmc.Bmc):
    def switch(self, to):
        with open(os.path.join(folder, 'calls'), 'a') as f:
            f.write(to + '\n')
        with open(os.path.join(folder, 'power.new'), 'w') as f:
            f.write(to)
        os.rename(os.path.join(folder, 'power.new'), os.path.join(folder, 'power'))

    def get_power_state(self):
        return read('power')

    def power_off(self):
        self.switch('off')

    def power_on(self):
        self.switch('on')


machine = Machine({read('username'): read('password')}, port=port,
                  bmcuuid=uuid.UUID(read('guid')), address='127.0.0.1')
if read('key'):
    machine.set_kg(bytes.fromhex(read('key')))
machine.listen()
