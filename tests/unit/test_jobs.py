import subprocess
import sys


def test_scripts_of_inference_and_training_load_no_torch(repository):
    code = "\n".join(
        [
            "import sys",
            "from workflow.models import jobs, warm",
            "from workflow.models.mini import jobs as training",
            "assert 'torch' not in sys.modules and 'transformers' not in sys.modules",
        ]
    )
    subprocess.run([sys.executable, "-c", code], cwd=repository, check=True)
